"""What a cut head gives instead: each kind makes the edits that cut one head, or one site."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.ablation.constants import optimal_constants
from interp.ablation.reference import Means, absolute_activations, means_of
from interp.model import Transformer
from interp.sweeps import SITES, Edit, Examples, Intervention, Site, Slots, examples_of
from interp.sweeps.subject import scores_follow_queries

Head = tuple[int, int | None]


@dataclass(frozen=True)
class Request:
    """What is to be cut, and with what.

    Attributes:
        model: The model.
        examples: What it will be run on.
        site: Which activation is cut.
        reference: Where means and other examples come from: tokens, a Batch, or ready means.
        positions: Absolute positions of the tokens that are cut; None: all.
        past: Tokens that a KV cache holds.
        generator: Draws the other examples of `resample`.
    """

    model: Any
    examples: Examples
    site: Site = "z"
    reference: Any = None
    positions: tuple[int, ...] | None = None
    past: int = 0
    generator: torch.Generator | None = None


@dataclass(frozen=True)
class Cut:
    """How a kind cuts.

    Attributes:
        edits: The edits that cut a head of a layer.
        holds_patterns: All attention patterns stay as they were.
        needs: Activations of the clean run that the edits read.
    """

    edits: Callable[[int, int | None], tuple[Edit, ...]]
    holds_patterns: bool = False
    needs: frozenset[str] = frozenset()

    def together(self, heads: Iterable[Head]) -> Intervention:
        """Cut all of these at once."""
        edits = tuple(edit for layer, head in heads for edit in self.edits(layer, head))
        return Intervention(edits, self.holds_patterns)


def zero(request: Request) -> Cut:
    """Nothing."""
    _refuse_reference(request, "zero")
    return _at_site(request, lambda layer, head: _nothing)


def mean(request: Request) -> Cut:
    """The mean over the reference batch at the same position."""
    means = _means(request, "mean")

    def change(layer: int, head: int | None) -> Callable[[Tensor, Slots], Tensor]:
        table = means.of(layer, head)
        return lambda x, slots: _as_wide(table[slots.position], x)

    return _at_site(request, change)


def grand_mean(request: Request) -> Cut:
    """The mean over the reference batch and all its positions."""
    means = _means(request, "grand_mean")

    def change(layer: int, head: int | None) -> Callable[[Tensor, Slots], Tensor]:
        vector = means.over_positions(layer, head)
        return lambda x, slots: _as_wide(vector, x)

    return _at_site(request, change)


def resample(request: Request) -> Cut:
    """What the head gave at that position in another example, drawn once for each example."""
    other = _reference_examples(request, "resample")
    if request.generator is None:
        raise ValueError("resample draws other examples: pass generator=torch.Generator()…")
    stored = absolute_activations(request.model, other, request.site)
    own = other.tokens is request.examples.tokens
    picks = _others(len(request.examples), len(other), own=own, generator=request.generator)
    picks = picks.to(request.examples.tokens.device)
    _check_reach(request, int(stored.shortest), "of every reference example")

    def change(layer: int, head: int | None) -> Callable[[Tensor, Slots], Tensor]:
        table = stored.of(layer, head)
        return lambda x, slots: _as_wide(table[picks[slots.examples][:, None], slots.position], x)

    return _at_site(request, change)


def uniform(request: Request) -> Cut:
    """The head's values, mixed by a pattern that is uniform over the keys it may see.

    Queries of 0 make it so on the fused route; where scores have other parts, they are set to 0.
    """
    _refuse_reference(request, "uniform")
    _refuse_other_sites(request, "uniform")

    def edits(layer: int, head: int | None) -> tuple[Edit, ...]:
        if scores_follow_queries(request.model, layer):
            return (Edit("q", layer, head, _nothing, request.positions),)
        return (Edit("scores", layer, head, _flat, request.positions),)

    return Cut(edits)


def pattern_preserving(request: Request) -> Cut:
    """Nothing, while every attention pattern of the model is held at the clean run's.

    So only what flows through values changes. Source: Olsson et al. 2022, "In-context Learning and
    Induction Heads" (their pattern-preserving ablation).
    """
    _refuse_reference(request, "pattern_preserving")
    _refuse_other_sites(request, "pattern_preserving")
    return Cut(_at_site(request, lambda layer, head: _nothing).edits, holds_patterns=True)


def direct(request: Request) -> Cut:
    """The head's own write is missing where the last norm reads; all else is as it was."""
    _refuse_reference(request, "direct")
    _refuse_other_sites(request, "direct")
    model = request.model
    if not isinstance(model, Transformer):
        raise ValueError("direct: a wrapped model's residual stream can't be reached; load it")
    if model.config.post_normalization != "none":
        raise ValueError(
            "direct: this model normalises what attention writes, so that no head has a write of "
            "its own; cut it by another kind"
        )
    last = model.config.n_layers - 1

    def edits(layer: int, head: int | None) -> tuple[Edit, ...]:
        def without(x: Tensor, slots: Slots) -> Tensor:
            z = slots.clean[SITES["z"].format(layer)][:, :, head]
            return x - z @ model.blocks[layer].attn.W_O[head]

        return (Edit("final", last, None, without, request.positions),)

    return Cut(edits, needs=frozenset(SITES["z"].format(n) for n in range(last + 1)))


def optimal(request: Request) -> Cut:
    """The constant at each position that costs the least loss on the reference batch."""
    _refuse_other_sites(request, "optimal")
    other = _reference_examples(request, "optimal")
    if not bool(other.weights.any()):
        raise ValueError("optimal ablation is fitted: its reference needs targets")
    table = optimal_constants(request.model, other)
    _check_reach(request, table.shape[1], "of the reference")

    def change(layer: int, head: int | None) -> Callable[[Tensor, Slots], Tensor]:
        return lambda x, slots: table[layer, slots.position, head].to(x.dtype)

    return _at_site(request, change)


def _at_site(
    request: Request, change: Callable[[int, int | None], Callable[[Tensor, Slots], Tensor]]
) -> Cut:
    def edits(layer: int, head: int | None) -> tuple[Edit, ...]:
        return (Edit(request.site, layer, head, change(layer, head), request.positions),)

    return Cut(edits)


def _as_wide(given: Tensor, x: Tensor) -> Tensor:
    """In the dtype of `x`; of a pattern, as many keys: later ones have no weight in a causal one.

    Raises:
        ValueError: There are fewer keys than in `x`.
    """
    if given.shape[-1] < x.shape[-1]:
        raise ValueError(f"the reference has {given.shape[-1]} keys, the tokens {x.shape[-1]}")
    return given[..., : x.shape[-1]].to(x.dtype)


def _nothing(x: Tensor, slots: Slots) -> Tensor:
    return torch.zeros_like(x)


def _flat(scores: Tensor, slots: Slots) -> Tensor:
    return scores.masked_fill(scores != float("-inf"), 0.0)


# --- references ----------------------------------------------------------------------------


def _means(request: Request, kind: str) -> Means:
    ready = request.reference
    if isinstance(ready, Tensor) and ready.dtype.is_floating_point:
        means = Means.ready(ready, request.model, request.site, per_position=kind == "mean")
    else:
        other = _reference_examples(request, kind)
        means = means_of(request.model, other, request.site)
    if kind == "mean":
        _check_reach(request, means.length, "of the reference")
    return means


def _reference_examples(request: Request, kind: str) -> Examples:
    """The reference, checked."""
    if request.reference is None:
        raise ValueError(
            f"{kind} ablation needs reference=, a batch to take the {kind} from: tokens or a "
            "Batch; the same tokens for their own"
        )
    reference = examples_of(request.reference, needs_targets=False)
    padded = request.examples.mask is not None or reference.mask is not None
    if request.site == "pattern" and (padded or request.past):
        raise ValueError(
            f"{kind} ablation of patterns needs tokens and a reference without pads, at once: "
            "the keys of padded sequences do not stand in the same columns"
        )
    return reference


def _check_reach(request: Request, length: int, whose: str) -> None:
    mask = request.examples.mask
    longest = request.examples.tokens.shape[1] if mask is None else int(mask.sum(-1).max())
    if request.past + longest > length:
        raise ValueError(
            f"the tokens reach position {request.past + longest - 1}, {whose} positions there are "
            f"only {length}; pass a reference that is as long"
        )


def _others(n: int, n_others: int, *, own: bool, generator: torch.Generator) -> Tensor:
    """For each example another one; never itself where they are the same examples."""
    if not own:
        return torch.randint(n_others, (n,), generator=generator)
    if n < 2:
        raise ValueError("resample needs another example: pass two or more, or other reference=")
    return (torch.arange(n) + torch.randint(1, n, (n,), generator=generator)) % n


def _refuse_reference(request: Request, kind: str) -> None:
    if request.reference is not None:
        raise ValueError(f"{kind} ablation reads no reference; leave reference= out")


def _refuse_other_sites(request: Request, kind: str) -> None:
    if request.site != "z":
        raise ValueError(f"{kind} ablation is of heads; site={request.site!r} does not go with it")


ABLATIONS: dict[str, Callable[[Request], Cut]] = {
    "zero": zero,
    "mean": mean,
    "grand_mean": grand_mean,
    "resample": resample,
    "uniform": uniform,
    "pattern_preserving": pattern_preserving,
    "direct": direct,
    "optimal": optimal,
}
"""The kinds by name."""


def cut_of(kind: str, request: Request) -> Cut:
    """How a kind cuts.

    Raises:
        ValueError: There is no such kind, or it can't be done as requested.
    """
    if kind not in ABLATIONS:
        raise ValueError(f"no kind of ablation {kind!r}; there are {', '.join(ABLATIONS)}")
    return ABLATIONS[kind](request)
