"""Attention to a few blocks of keys for each block of queries, gathered side by side."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.attention.banded import Rows, attend_blocks
from interp.attention.call import TILE, AttentionCall, per_query_head

AT_ONCE = 8
"""Blocks of queries whose keys are gathered together: what a core's cache holds."""

Table = Callable[[int], Int[Tensor, "n_blocks slot"]]
"""For so many blocks: the blocks that each may see, its own last; −1: none."""


def block_sparse(
    call: AttentionCall, table: Table, *, size: int, full_from: int
) -> Float[Tensor, "batch head q d_value"]:
    """Attention by a causal rule that sees whole blocks, and the query's own up to itself.

    Args:
        call: Without pads; the queries are the last of the keys.
        table: Which blocks each block of queries sees.
        size: Tokens in a block.
        full_from: The first block whose row of the table has no −1, nor any after it.
    """
    n_q, n_k, heads = call.q.shape[2], call.k.shape[2], call.q.shape[1]
    first, n_blocks = (n_k - n_q) // size, -(-n_k // size)
    front, back = (n_k - n_q) % size, n_blocks * size - n_k
    q = _padded(call.q.flatten(0, 1), front, back).unflatten(1, (-1, size))
    k, v = (
        _padded(per_query_head(x, heads).flatten(0, 1), 0, back).unflatten(1, (-1, size))
        for x in (call.k, call.v)
    )
    seen = table(n_blocks)[first:].to(q.device)
    rows = Rows(q, v.shape[-1])
    for start, stop in _tiles(call, seen, size):
        blocks = seen[start:stop]
        own = torch.arange(first + start, first + stop, device=q.device)[:, None]
        q_pos, k_pos = _positions(own, size), _positions(blocks, size)
        alike = call.bias is None and first + start >= full_from
        z = attend_blocks(
            call,
            q[:, start:stop],
            _gathered(k, blocks),
            _gathered(v, blocks),
            seen=_up_to_itself(q_pos, k_pos, blocks=1 if alike else len(blocks)),
            q_pos=q_pos,
            k_pos=k_pos,
        )
        rows.put(start, z)
    z = rows.all().flatten(1, 2)
    return z[:, front : front + n_q].unflatten(0, call.q.shape[:2])


def _padded(x: Tensor, front: int, back: int) -> Tensor:
    return F.pad(x, (0, 0, front, back)) if front or back else x


def _gathered(x: Float[Tensor, "g block size d"], rows: Int[Tensor, "r slot"]) -> Tensor:
    some = x.index_select(1, rows.clamp(min=0).flatten())
    return some.unflatten(1, rows.shape).flatten(2, 3)


def _positions(rows: Int[Tensor, "r slot"], size: int) -> Int[Tensor, "r k"]:
    position = rows[:, :, None] * size + torch.arange(size, device=rows.device)
    return position.masked_fill((rows < 0)[:, :, None], -1).flatten(1)


def _up_to_itself(q_pos: Tensor, k_pos: Tensor, *, blocks: int) -> Bool[Tensor, "blocks q k"]:
    q_pos, k_pos = q_pos[:blocks, :, None], k_pos[:blocks, None, :]
    return (k_pos <= q_pos) & (k_pos >= 0)


def _tiles(call: AttentionCall, seen: Tensor, size: int) -> Iterator[tuple[int, int]]:
    entries = size * size * seen.shape[1]
    if call.soft_cap is not None or call.bias is not None:
        entries *= call.q.shape[0] * call.q.shape[1]
    step = max(1, min(AT_ONCE, TILE // entries))
    for start in range(0, len(seen), step):
        yield start, min(start + step, len(seen))
