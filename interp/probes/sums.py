"""Means over the rows that have a statistic, added up batch by batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

NAMED = {"renyi": "renyi_entropy", "top_keys": "top_keys_share"}
OPTIONAL = ("renyi_entropy", "max_weight", "top_keys_share")


@dataclass
class Sums:
    """Sums and counts of each statistic, [L H P] in float64; P = 1 where positions are not kept."""

    n_layers: int
    n_heads: int
    total: dict[str, Tensor] = field(default_factory=dict)
    count: dict[str, Tensor] = field(default_factory=dict)

    def add(
        self,
        layer: int,
        found: Mapping[str, Float[Tensor, "batch head pos"]],
        positions: Int[Tensor, "b pos"] | None,
    ) -> None:
        """Add a layer's rows; NaN is a row without the statistic."""
        rows = torch.stack(list(found.values()))
        there = ~rows.isnan()
        values = _by_position(rows.masked_fill_(~there, 0.0), positions)
        counts = _by_position(there, positions)
        for name, value, count in zip(found, values, counts, strict=True):
            for held, part in ((self.total, value), (self.count, count)):
                self._room(held, NAMED.get(name, name), part)[layer, :, : part.shape[1]] += part

    def _room(self, held: dict[str, Tensor], name: str, part: Tensor) -> Tensor:
        have = held.get(name)
        if have is None or have.shape[2] < part.shape[1]:
            grown = part.new_zeros(self.n_layers, self.n_heads, part.shape[1])
            if have is not None:
                grown[:, :, : have.shape[2]] = have
            held[name] = grown
        return held[name]

    def mean(self, name: str) -> Float[Tensor, "layer head"]:
        """Mean of one statistic over all rows that have it."""
        return (self.total[name].sum(-1) / self.count[name].sum(-1)).float()

    def means(self, *, per_position: bool) -> dict[str, Any]:
        """Mean of each statistic, [L H] or [L H P]; NaN where no row has it."""
        found: dict[str, Any] = dict.fromkeys(OPTIONAL)
        for name, total in self.total.items():
            found[name] = (total / self.count[name]).float() if per_position else self.mean(name)
        return found | {"effective_keys": found["entropy"].exp()}


def _by_position(
    rows: Float[Tensor, "statistic batch head pos"], positions: Int[Tensor, "b pos"] | None
) -> Float[Tensor, "statistic head place"]:
    if positions is None:
        return rows.sum((1, 3), dtype=torch.float64)[..., None]
    if positions.shape[0] == 1 and rows.shape[1] > 1:
        rows = rows.sum(1, keepdim=True, dtype=torch.float64)
    rows = rows.to(torch.float64).transpose(1, 2).flatten(2)
    index = positions.flatten()
    size = int(index.max()) + 1 if index.numel() else 0
    return rows.new_zeros(*rows.shape[:2], size).index_add_(2, index, rows)
