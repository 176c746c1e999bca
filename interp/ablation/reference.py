"""What a reference batch gives: means per position, and every example's activations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.sweeps import SITES, Examples, Site, absolute_positions, evaluating, examples_of
from interp.sweeps.edits import HEAD_AXIS

BATCH = 256


def reference_mean(
    model: Any, reference: Any, *, batch_size: int = BATCH, mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "layer pos head d_head"]:
    """The mean z of each head at each position over a reference batch, in the model's dtype.

    Accumulated in float32; pads count nowhere, and a position is a token's index among the real
    ones, so that padding and `batch_size` change nothing.

    Args:
        model: The model.
        reference: Tokens or a Batch.
        batch_size: Examples that are run at a time.
        mask: True where a token is real.
    """
    examples = examples_of(reference, mask, needs_targets=False)
    means = means_of(model, examples, "z", batch_size=batch_size)
    return means.table.to(means.dtype)


@dataclass(frozen=True, eq=False)
class Means:
    """Means of a site at each position, and how many tokens are behind each.

    Attributes:
        table: [L T ...], float32 or better.
        counts: Tokens behind each position.
        dtype: Of the activations.
        has_heads: Whether the axis after the positions is heads.
    """

    table: Float[Tensor, "layer pos *rest"]
    counts: Int[Tensor, " pos"] | None
    dtype: torch.dtype
    has_heads: bool

    @classmethod
    def ready(cls, table: Tensor, model: Any, site: Site, *, per_position: bool) -> "Means":
        """Means that somebody computed before, [L T H E].

        Raises:
            ValueError: They don't fit, or a mean over positions is wanted of them.
        """
        config = model.config
        if site != "z" or not per_position:
            raise ValueError("ready means are of z, per position; pass reference tokens instead")
        if table.ndim != 4 or table.shape[0] != config.n_layers or table.shape[2] != config.n_heads:
            raise ValueError(
                f"ready means are [layer {config.n_layers}, pos, head {config.n_heads}, d_head], "
                f"as reference_mean gives them; got {list(table.shape)}"
            )
        return cls(table, None, table.dtype, has_heads=True)

    @property
    def length(self) -> int:
        """How many positions there are."""
        return self.table.shape[1]

    def of(self, layer: int, head: int | None) -> Float[Tensor, "pos *rest"]:
        """One head's means, or those of a whole site."""
        table = self.table[layer]
        return table if head is None else table[:, head]

    def over_positions(self, layer: int, head: int | None) -> Tensor:
        """The mean over positions too, each counting by its tokens."""
        table = self.of(layer, head)
        assert self.counts is not None  # `ready` refuses
        weight = self.counts.to(table.dtype)
        return torch.einsum("t,t...->...", weight, table) / weight.sum()


def means_of(model: Any, examples: Examples, site: Site, *, batch_size: int = BATCH) -> Means:
    """Run the examples, no further than the site's last layer, and average."""
    longest = _longest(examples)
    counts = torch.zeros(longest, dtype=torch.long, device=examples.tokens.device)
    sums: list[Tensor] = []
    dtype = torch.float32
    for some in _batches(examples, batch_size):
        found = _activations(model, some, site)
        dtype = found[0].dtype
        if not sums:
            wide = torch.promote_types(dtype, torch.float32)
            sums = [x.new_zeros((longest, *x.shape[2:]), dtype=wide) for x in found]
        real = _real(some)
        counts += torch.bincount(absolute_positions(some).expand_as(real)[real], minlength=longest)
        for total, x in zip(sums, found, strict=True):
            _add_up(total, x, some)
    table = torch.stack(sums)
    table /= counts.to(table.dtype).reshape(-1, *[1] * (table.ndim - 2))
    return Means(table, counts, dtype, has_heads=site in HEAD_AXIS)


def _add_up(total: Tensor, x: Tensor, examples: Examples) -> None:
    if examples.mask is None:
        total[: x.shape[1]] += x.sum(0, dtype=total.dtype)
    else:
        real = examples.mask
        total.index_add_(0, absolute_positions(examples)[real], x[real].to(total.dtype))


@dataclass(frozen=True, eq=False)
class Stored:
    """Every example's activations, in order of position: slot t holds the t-th real token.

    Attributes:
        layers: One tensor [N T ...] a layer.
        shortest: Real tokens of the shortest example.
    """

    layers: list[Tensor]
    shortest: int

    def of(self, layer: int, head: int | None) -> Float[Tensor, "example pos *rest"]:
        """One head's, or a whole site's."""
        return self.layers[layer] if head is None else self.layers[layer][:, :, head]


def absolute_activations(
    model: Any, examples: Examples, site: Site, *, batch_size: int = BATCH
) -> Stored:
    """Run the examples and keep what the site had."""
    parts: list[list[Tensor]] = []
    for some in _batches(examples, batch_size):
        order = (~_real(some)).int().argsort(dim=1, stable=True)
        rows = torch.arange(len(some), device=order.device)[:, None]
        parts.append([x[rows, order].clone() for x in _activations(model, some, site)])
    layers = [torch.cat(own) for own in zip(*parts, strict=True)]
    return Stored(layers, int(_real(examples).sum(1).min()))


class _SeenEnoughError(Exception):
    """Raised by the last hook: nothing that runs behind it is needed."""


def _activations(model: Any, examples: Examples, site: Site) -> list[Tensor]:
    """The site in every layer, [B T ...] with heads behind; the run ends at the last of them."""
    found: list[Tensor] = []
    n_layers = model.config.n_layers

    def keep(x: Tensor, _: object) -> None:
        found.append(x.movedim(1, 2) if HEAD_AXIS.get(site) == 1 else x)
        if len(found) == n_layers:
            raise _SeenEnoughError

    hooks: list[tuple[str, Callable]] = [(SITES[site].format(n), keep) for n in range(n_layers)]
    with evaluating(model):
        try:
            model(examples.tokens, mask=examples.mask, hooks=hooks)
        except _SeenEnoughError:
            return found
    raise RuntimeError(f"the model offered {SITES[site]!r} {len(found)} times in {n_layers} layers")


def _batches(examples: Examples, size: int) -> Iterator[Examples]:
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, got {size}")
    for first in range(0, len(examples), size):
        yield examples.rows(slice(first, first + size))


def _real(examples: Examples) -> Bool[Tensor, "B T"]:
    if examples.mask is not None:
        return examples.mask
    return torch.ones_like(examples.tokens, dtype=torch.bool)


def _longest(examples: Examples) -> int:
    longest = int(_real(examples).sum(1).max()) if len(examples) else 0
    if not longest:
        got = list(examples.tokens.shape)
        raise ValueError(f"a reference needs a real token, this one of {got} has none")
    return longest
