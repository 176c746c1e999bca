"""Attribution patching: what activation patching would find, to first order, for all at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention import AttentionCall, attend
from interp.hooks import Hook, Hooks
from interp.metrics import Metric
from interp.patching.activations import checked_by, n_columns
from interp.patching.outcomes import HeadPatching, PositionPatching, metric_name, patched
from interp.patching.pairs import Ends, ends_of, recorded
from interp.sweeps import SITES, Examples, Site, absolute_positions, evaluating
from interp.sweeps.clean import CallKeeper
from interp.sweeps.edits import HEAD_AXIS
from interp.sweeps.examples import Measure, measured
from interp.sweeps.subject import key_value_heads


def attribution_patching(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    site: Site = "z",
    metric: str | Metric = "logit_difference",
    at: str = "corrupted",
    by: str | None = None,
    qk_correction: bool = True,
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
) -> HeadPatching | PositionPatching:
    """First-order estimates of `activation_patching`, from two forward and one backward pass.

    Args:
        model: Ours, or a wrapped one that gradients flow through.
        clean: Tokens or a Batch: its targets are asked.
        corrupted: Tokens or a Batch of the same shape and padding.
        site: What would be carried over.
        metric: See `activation_patching`; it must be differentiable.
        at: Where the gradient is taken, which is the run that would be patched: "corrupted"
            estimates denoising, "clean" noising.
        by: See `activation_patching`.
        qk_correction: For q and k, which act through a softmax that is often saturated, take the
            change of z as it is, Δ = g_z · (P′V − PV), from one more fused run, and only what
            follows to first order (the correction of AtP*; no pattern is held). For "k", by head.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.

    Raises:
        ValueError: There is no such site or end, or the metric has no gradient.

    Source: Nanda 2023, "Attribution Patching"; Kramár et al. 2024, "AtP*".
    """
    if at not in ("clean", "corrupted"):
        raise ValueError(f"the gradient is taken at 'clean' or 'corrupted', got {at!r}")
    by = checked_by(site, by)
    direction = "denoising" if at == "corrupted" else "noising"
    ends = ends_of(
        model, clean, corrupted, direction=direction, metric=metric, mask=mask, hooks=hooks
    )
    corrected = qk_correction and site in ("q", "k")
    if corrected and site == "k" and by == "position":
        raise ValueError("a corrected estimate for keys is by head; or pass qk_correction=False")
    found = (_corrected if corrected else _linear)(model, ends, site, hooks)
    effects = torch.stack([_columns(x, ends, site, by, model) for x in found.terms])
    about = {"direction": direction, "site": site, "metric": metric_name(metric)}
    values = (found.base, found.source)
    return patched(effects, values, ends.base.weights, by=by, method="attribution", **about)


@dataclass(frozen=True, eq=False)
class _Terms:
    """Each layer's Δ·gradient, summed over its last axis, and the metric of both ends."""

    terms: list[Tensor]
    base: Float[Tensor, "B"]
    source: Float[Tensor, "B"]


def _linear(model: Any, ends: Ends, site: Site, hooks: Hooks) -> _Terms:
    names = [SITES[site].format(layer) for layer in range(model.config.n_layers)]
    slopes = gradients(model, ends.base, names, ends.measure, hooks=hooks)
    base = recorded(model, ends.base, names, ends.measure, hooks)
    source = recorded(model, ends.source, names, ends.measure, hooks)
    terms = [(slopes[name] * (source.cache[name] - base.cache[name])).sum(-1) for name in names]
    return _Terms([_rows_first(x, site) for x in terms], base.values, source.values)


def _rows_first(x: Tensor, site: Site) -> Tensor:
    return x.transpose(1, 2) if HEAD_AXIS.get(site) == 1 else x


def _corrected(model: Any, ends: Ends, site: Site, hooks: Hooks) -> _Terms:
    names = [SITES["z"].format(layer) for layer in range(model.config.n_layers)]
    slopes = gradients(model, ends.base, names, ends.measure, hooks=hooks)
    base, base_values = _calls(model, ends.base, ends.measure, hooks)
    source, source_values = _calls(model, ends.source, ends.measure, hooks)
    terms = []
    with evaluating(model):
        for layer, name in enumerate(names):
            own, other = base[layer], source[layer]
            moved = replace(own, q=other.q) if site == "q" else replace(own, k=other.k)
            change = (attend(moved) - attend(own)).transpose(1, 2)
            term = (slopes[name] * change).sum(-1)
            if site == "k":  # what a key head's query heads change, together
                term = term.unflatten(2, (key_value_heads(model), -1)).sum(-1)
            terms.append(term)
    return _Terms(terms, base_values, source_values)


def _calls(
    model: Any, examples: Examples, measure: Measure, hooks: Hooks
) -> tuple[dict[int, AttentionCall], Float[Tensor, "B"]]:
    keeper = CallKeeper()
    with evaluating(model):
        logits = model(examples.tokens, mask=examples.mask, hooks=hooks, kernel=keeper)
        return keeper.calls, measured(measure, logits, examples)


def _columns(x: Tensor, ends: Ends, site: Site, by: str, model: Any) -> Float[Tensor, "column B"]:
    """Sum [B T] or [B T H] over what the columns are not."""
    if by == "head":
        return x.sum(1).T
    x = x.sum(2) if x.ndim == 3 else x
    real = ends.base.mask
    x = x if real is None else x.masked_fill(~real, 0.0)
    n = n_columns(model, ends, site, by)
    where = absolute_positions(ends.base).expand(len(ends.base), -1)
    return x.new_zeros(len(x), n).scatter_add_(1, where, x).T


def gradients(
    model: Any, examples: Examples, names: list[str], measure: Measure, *, hooks: Hooks = ()
) -> dict[str, Tensor]:
    """The gradient of each example's metric with respect to its activations, by name.

    Raises:
        ValueError: The metric has no gradient.
    """
    nudges: dict[str, Tensor] = {}

    def nudge(name: str) -> Hook:
        def add_nothing(x: Tensor, _: object) -> Tensor:
            nudges[name] = torch.zeros_like(x, requires_grad=True)
            return x + nudges[name]

        return add_nothing

    own: list[tuple[str, Callable]] = [(name, nudge(name)) for name in names]
    with evaluating(model, gradients=True):
        logits = model(examples.tokens, mask=examples.mask, hooks=[*hooks, *own])
        values = measured(measure, logits, examples)
        if not values.requires_grad:
            raise ValueError(
                "this metric has no gradient; take one that is smooth in the logits, such as "
                "'logit_difference'"
            )
        total = values.masked_fill(examples.weights == 0, 0.0).sum()
        found = torch.autograd.grad(total, list(nudges.values()), allow_unused=True)
    zero = torch.zeros_like
    pairs = zip(nudges.items(), found, strict=True)
    return {name: zero(x) if g is None else g for (name, x), g in pairs}
