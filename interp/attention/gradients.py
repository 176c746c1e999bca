"""The backward pass of pattern statistics: tiles of scores are made again, used and let go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head
from interp.attention.kernels import scores_of
from interp.attention.tiles import Tile, tiles, weights_of


@dataclass(frozen=True)
class Known:
    """What the forward pass found: per row, and the values with their means."""

    log_sum_exp: Tensor
    entropy: Tensor
    values: Sequence[Tensor]
    mixed: Sequence[Tensor]


@dataclass(frozen=True)
class Towards:
    """Gradients of a loss with respect to what the forward pass found; None: unused."""

    log_sum_exp: Tensor
    entropy: Tensor | None
    mixed: Sequence[Tensor]


def pull_back(
    call: AttentionCall, known: Known, towards: Towards, memory: int
) -> tuple[Tensor, ...]:
    """Gradients with respect to q, k and the values, in O(n · tile) memory."""
    heads = call.q.shape[1]
    g_q, g_k = torch.zeros_like(call.q), call.k.new_zeros(*_per_head_shape(call))
    wide = [v if v.shape[1] == 1 else per_query_head(v, heads) for v in known.values]
    g_values = [m.new_zeros(*g_k.shape[:3], m.shape[-1]) for m in known.mixed]
    for tile in tiles(call, memory):
        part = _Rows(tile, known, towards)
        p, log_p = part.weights()
        g_raw = part.towards_scores(p, log_p, wide) * _slope(tile.call) * call.scale
        g_q[:, :, tile.rows] = g_raw @ per_query_head(tile.call.k, heads)
        g_k[:, :, tile.keys] += g_raw.mT @ tile.call.q
        for whole, g in zip(g_values, towards.mixed, strict=True):
            whole[:, :, tile.keys] += p.mT @ g[:, :, tile.rows]
    folded = [_folded(g, v) for g, v in zip(g_values, known.values, strict=True)]
    return g_q, _folded(g_k, call.k), *folded


@dataclass(frozen=True)
class _Rows:
    """One tile's part of what is known and wanted."""

    tile: Tile
    known: Known
    towards: Towards

    def _row(self, x: Tensor) -> Tensor:
        return x[:, :, self.tile.rows]

    def weights(self) -> tuple[Tensor, Tensor]:
        return weights_of(scores_of(self.tile.call), self._row(self.known.log_sum_exp))

    def towards_scores(
        self, p: Tensor, log_p: Tensor, values: Sequence[Tensor]
    ) -> Float[Tensor, "batch head q k"]:
        """The gradient with respect to this tile's scores."""
        g = self._row(self.towards.log_sum_exp)[..., None].expand_as(p)
        if self.towards.entropy is not None:
            spread = log_p + self._row(self.known.entropy)[..., None]
            g = g - self._row(self.towards.entropy)[..., None] * spread
        for v, mean, g_mean in zip(values, self.known.mixed, self.towards.mixed, strict=True):
            along, g_row = v[:, :, self.tile.keys], self._row(g_mean)
            level = (g_row * self._row(mean)).sum(-1, keepdim=True)
            g = g + g_row @ along.mT - level
        return p * g


def _per_head_shape(call: AttentionCall) -> tuple[int, int, int, int]:
    batch, _, n_k, width = call.k.shape
    return batch, call.q.shape[1], n_k, width


def _slope(call: AttentionCall) -> Tensor | float:
    """How a score changes with scale·q·k: 1, or less under a soft cap."""
    if call.soft_cap is None:
        return 1.0
    bare = replace(call, bias=None)
    return 1.0 - (scores_of(bare).masked_fill(~call.visible.grid(), 0.0) / call.soft_cap).square()


def _folded(g: Float[Tensor, "batch head k d"], like: Tensor) -> Tensor:
    """Summed over the query heads, and the examples, that share one key or value head."""
    g = g.unflatten(1, (like.shape[1], -1)).sum(2)
    return g.sum(0, keepdim=True) if like.shape[0] == 1 else g
