"""Attention to near keys and a few far ones, at a cost of n · (near + far) instead of n².

Queries are taken in blocks; the keys that a block may see are a view of overlapping stretches, not
a copy. Far keys stand in front of every stretch, so one kernel call sees all that a row sees. Away
from both ends of the sequence and from far keys, all blocks share one mask.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.attention.call import TILE, AttentionCall, per_query_head
from interp.attention.widths import sdpa


@dataclass(frozen=True)
class _Layout:
    """Blocks of queries, and the stretch of keys before, in and after each.

    Attributes:
        size: Queries in a block.
        n_blocks: How many blocks.
        slots: Blocks of keys in a stretch.
        first_query: Position of the first query.
        first_key: Position of the first key of the first stretch; may be below 0.
        kept: Positions of the keys that are there, from and to.
        far: Positions of the far keys, rising.
    """

    size: int
    n_blocks: int
    slots: int
    first_query: int
    first_key: int
    kept: tuple[int, int]
    far: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """From, to, and whether the blocks between can share one mask."""
        for kind, blocks in groupby(range(self.n_blocks), self._kind):
            run = list(blocks)
            yield run[0], run[-1] + 1, kind is not None

    def _kind(self, block: int) -> int | None:
        """The far keys behind a block, or None if its mask is its own."""
        start, stop = self._stretch(block)
        behind = bisect_left(self.far, start)
        edge = start < self.kept[0] or stop > self.kept[1]
        return None if edge or bisect_left(self.far, stop) > behind else behind

    def _stretch(self, block: int) -> tuple[int, int]:
        start = self.first_key + block * self.size
        return start, start + self.slots * self.size

    def queries(self, blocks: range, device: torch.device) -> Int[Tensor, "blocks size"]:
        """Positions of the queries of some blocks."""
        first = torch.arange(blocks.start, blocks.stop, device=device)[:, None] * self.size
        return self.first_query + first + torch.arange(self.size, device=device)

    def keys(self, blocks: range, device: torch.device) -> Int[Tensor, "blocks columns"]:
        """Positions of the keys of some stretches, −1 where a column holds none to see."""
        start = torch.tensor([self._stretch(b)[0] for b in blocks], device=device)[:, None, None]
        near = start + torch.arange(self.slots * self.size, device=device).view(self.slots, -1)
        near = torch.where((near >= self.kept[0]) & (near < self.kept[1]), near, -1)
        far = torch.tensor(self.far, dtype=torch.long, device=device)
        inside = (far >= start) & (far < start + self.slots * self.size)
        far = torch.where(inside, -1, far).expand(-1, self.slots, -1).clone()
        far[:, 1:] = -1  # one copy is enough
        return torch.cat([far, near], -1).flatten(1)


def banded(
    call: AttentionCall, *, before: int, after: int = 0, far: tuple[int, ...] = (), block: int = 0
) -> Float[Tensor, "batch head q d_value"]:
    """Attention by a rule that lets no query see beyond a band and some far keys.

    Args:
        call: Without pads; the queries are the last of the keys.
        before: How many keys before its own a query may see.
        after: How many after its own.
        far: Positions that may be seen from anywhere, rising.
        block: Queries in a block; 0 chooses.

    Returns:
        What dense attention under the same rule returns.
    """
    # Small blocks waste the fewest scores; the backward pass copies stretches, small ones more.
    size = block or (64 if torch.is_grad_enabled() and call.q.requires_grad else 32)
    n_q, n_k = call.q.shape[2], call.k.shape[2]
    far = tuple(position for position in far if position < n_k)
    if n_q <= size:
        return _one_block(call, before, far=far)
    offset = n_k - n_q
    kept = max(0, offset - before)
    behind, ahead = -(-before // size), -(-after // size)
    layout = _Layout(
        size=size,
        n_blocks=-(-n_q // size),
        slots=behind + 1 + ahead,
        first_query=offset,
        first_key=offset - behind * size,
        kept=(kept, n_k),
        far=far,
    )
    return _in_blocks(call, layout)


def _one_block(call: AttentionCall, before: int, *, far: tuple[int, ...]) -> Tensor:
    """Few queries: the keys that they may see, put side by side."""
    n_q, n_k = call.q.shape[2], call.k.shape[2]
    first = max(0, n_k - n_q - before)
    outside = [position for position in far if position < first]
    keys = torch.tensor([*outside, *range(first, n_k)], device=call.q.device)
    q_pos = torch.arange(n_k - n_q, n_k, device=call.q.device)[None]
    q, k, v = (x.flatten(0, 1)[:, None] for x in _heads_alike(call))
    k, v, k_pos = k[:, :, keys], v[:, :, keys], keys[None]
    seen = _seen(call, q_pos, k_pos)
    z = attend_blocks(call, q, k, v, seen=seen, q_pos=q_pos, k_pos=k_pos)
    return z.view(*call.q.shape[:3], -1)


def _in_blocks(call: AttentionCall, layout: _Layout) -> Tensor:
    q, k, v = (x.flatten(0, 1) for x in _heads_alike(call))
    n_q, size = q.shape[1], layout.size
    q = F.pad(q, (0, 0, 0, layout.n_blocks * size - n_q)).unflatten(1, (-1, size))
    k, v = _blocks_of_keys(k, layout), _blocks_of_keys(v, layout)
    rows = Rows(q, v.shape[-1])
    for start, stop, shared in layout.runs():
        shared = shared and not (call.bias is not None and layout.far)
        for blocks in _tiles(start, stop, _blocks_at_once(call, layout, shared)):
            masked = blocks[:1] if shared else blocks
            q_pos, k_pos = layout.queries(masked, q.device), layout.keys(masked, q.device)
            z = attend_blocks(
                call,
                q[:, blocks.start : blocks.stop],
                _stretches(k, blocks, layout),
                _stretches(v, blocks, layout),
                seen=_seen(call, q_pos, k_pos),
                q_pos=q_pos,
                k_pos=k_pos,
            )
            rows.put(blocks.start, z)
    return rows.all().flatten(1, 2)[:, :n_q].unflatten(0, call.q.shape[:2])


class Rows:
    """Blocks of output as they come: in one buffer, or apart where gradients must pass."""

    def __init__(self, q: Float[Tensor, "g block q d"], width: int) -> None:
        self._parts: list[Tensor] | None = [] if torch.is_grad_enabled() else None
        self._whole = None if torch.is_grad_enabled() else q.new_empty(*q.shape[:3], width)

    def put(self, start: int, z: Float[Tensor, "g block q d"]) -> None:
        """Take in some blocks, in order."""
        if self._whole is not None:
            self._whole[:, start : start + z.shape[1]] = z
        else:
            assert self._parts is not None
            self._parts.append(z)

    def all(self) -> Float[Tensor, "g block q d"]:
        """All blocks."""
        if self._whole is not None:
            return self._whole
        assert self._parts is not None
        return torch.cat(self._parts, 1) if len(self._parts) > 1 else self._parts[0]


def _heads_alike(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    heads = call.q.shape[1]
    return call.q, per_query_head(call.k, heads), per_query_head(call.v, heads)


def _blocks_of_keys(x: Float[Tensor, "g n_k d"], layout: _Layout) -> Tensor:
    """[g block far + size d]: the far keys, then the block's own."""
    front = layout.kept[0] - layout.first_key
    length = (layout.n_blocks + layout.slots - 1) * layout.size
    near = x[:, layout.kept[0] :]
    near = F.pad(near, (0, 0, front, length - front - near.shape[1]))
    near = near.unflatten(1, (-1, layout.size))
    if not layout.far:
        return near
    far = x[:, None, list(layout.far)].expand(-1, near.shape[1], -1, -1)
    return torch.cat([far, near], 2)


def _stretches(x: Float[Tensor, "g block width d"], blocks: range, layout: _Layout) -> Tensor:
    """[g block slots·width d]: what each of these blocks may see, as an overlapping view."""
    some, width = x[:, blocks.start : blocks.stop + layout.slots - 1], x.shape[2]
    return some.flatten(1, 2).unfold(1, layout.slots * width, width).mT


def _tiles(start: int, stop: int, step: int) -> Iterator[range]:
    for first in range(start, stop, step):
        yield range(first, min(first + step, stop))


def _blocks_at_once(call: AttentionCall, layout: _Layout, shared: bool) -> int:
    """As many as keep what is spelled out under `TILE` entries."""
    entries = layout.size * layout.slots * (layout.size + len(layout.far))
    if call.soft_cap is not None:
        entries *= call.q.shape[0] * call.q.shape[1]
    elif shared:
        return layout.n_blocks
    elif call.bias is not None:
        entries *= call.q.shape[0] * call.q.shape[1]
    return max(1, TILE // entries)


def attend_blocks(
    call: AttentionCall,
    q: Float[Tensor, "g block q d"],
    k: Float[Tensor, "g block k d"],
    v: Float[Tensor, "g block k d"],
    *,
    seen: Bool[Tensor, "b q k"],
    q_pos: Int[Tensor, "b q"],
    k_pos: Int[Tensor, "b k"],
) -> Float[Tensor, "g block q d"]:
    """Dense attention inside each block; mask and positions of one block stand for all."""
    bias = None if call.bias is None else _bias_by_group(call, q_pos, k_pos)
    if call.soft_cap is not None:
        return _capped(call, q, k, v, seen=seen, bias=bias)
    mask = seen if bias is None else bias.to(q.dtype).masked_fill(~seen, float("-inf"))
    mask = mask[0] if mask.dim() == 3 and len(mask) == 1 else mask.view(-1, *mask.shape[-3:])
    return sdpa(q, k, v, attn_mask=mask, scale=call.scale)


def _seen(call: AttentionCall, q_pos: Tensor, k_pos: Tensor) -> Bool[Tensor, "b q k"]:
    """What the rule says; a key at −1 is none, and a query past the last key, filling, sees all."""
    seen = call.visible.rule(q_pos[:, :, None], k_pos[:, None, :]) & (k_pos >= 0)[:, None]
    return seen | (q_pos >= call.k.shape[2])[:, :, None]


def _bias_by_group(call: AttentionCall, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    assert call.bias is not None
    bias = call.bias(q_pos, k_pos).transpose(0, 1)  # [head block q k]
    return bias.repeat(call.q.shape[0], 1, 1, 1)


def _capped(
    call: AttentionCall, q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor, bias: Tensor | None
) -> Tensor:
    assert call.soft_cap is not None
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(wide) @ k.to(wide).mT) * call.scale
    scores = call.soft_cap * torch.tanh(scores / call.soft_cap)
    scores = scores if bias is None else scores + bias
    return scores.masked_fill(~seen, float("-inf")).softmax(-1).to(v.dtype) @ v


def rows_apart(
    call: AttentionCall, z: Float[Tensor, "batch head q d"], rows: list[int]
) -> Float[Tensor, "batch head q d"]:
    """`z`, with these query slots done densely: the few that see beyond the band."""
    if not rows:
        return z
    index = torch.tensor(rows, device=z.device)
    n_q, n_k = call.q.shape[2], call.k.shape[2]
    q, k, v = (x.flatten(0, 1)[:, None] for x in _heads_alike(call))
    q_pos, k_pos = (n_k - n_q + index)[None], torch.arange(n_k, device=z.device)[None]
    seen = _seen(call, q_pos, k_pos)
    some = attend_blocks(call, q[:, :, index], k, v, seen=seen, q_pos=q_pos, k_pos=k_pos)
    return z.index_copy(2, index, some.view(*z.shape[:2], len(rows), -1))
