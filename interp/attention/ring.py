"""Exact attention over a sequence that is sharded across processes.

Every process keeps its queries; pieces of keys and values go around the ring, and what a process
finds with each is merged by log-sum-exp, so nothing is approximated and nobody holds the whole
sequence. `sharding` says which tokens a process has. In a script that `torchrun
--nproc-per-node 2` starts:

    dist.init_process_group("gloo")
    ring = Ring.of()
    z = ring_attention(*(shard(x, ring) for x in (q, k, v)), ring)

Tried with 2 and 4 processes and gloo on CPUs. With "nccl" and tensors on GPUs the calls are the
same, but that was not tried.

Source: Liu et al. 2023, "Ring Attention with Blockwise Transformers". The weight of a part is
σ(L_part − L), with L the log-sum-exp of all parts so far.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from interp.attention import lse
from interp.attention.call import AttentionCall, per_query_head
from interp.attention.functional import call_of, check_shapes
from interp.attention.merging import Merged, merge
from interp.attention.sharding import Ring

PIECES = 16
"""Into how many pieces a shard's keys are cut on their way: what travels is held on top."""

ROWS = 4096
"""Queries that are done at a time."""

MEMORY = 4 << 20
"""Bytes that weights take, spelled out for some rows and one piece."""


def ring_attention(
    q: Float[Tensor, "batch head shard d_head"],
    k: Float[Tensor, "batch kv_head shard d_head"],
    v: Float[Tensor, "batch kv_head shard d_value"],
    ring: Ring,
    *,
    causal: bool = True,
    scale: float | None = None,
) -> Float[Tensor, "batch head shard d_value"]:
    """This process's rows of attention over the whole sequence; once differentiable.

    Args:
        q: This process's queries, as `shard` cuts them; all processes call together.
        k: Its keys; their heads may divide the queries'.
        v: Its values.
        ring: The processes.
        causal: No token sees a later one.
        scale: What q·k is multiplied with; 1/√d_head by default.

    Raises:
        ConnectionError: Another process is gone.
        ValueError: The shapes are not those of shards.
    """
    how = _How(ring, causal, _checked_scale(q, k, v, scale))
    return _RingAttention.apply(how, q, k, v)[0]


@torch.no_grad()
def ring_moments(
    q: Float[Tensor, "batch head shard d_head"],
    k: Float[Tensor, "batch kv_head shard d_head"],
    values: Sequence[Float[Tensor, "batch h shard feature"]],
    ring: Ring,
    *,
    causal: bool = True,
    scale: float | None = None,
) -> Merged:
    """Log-sum-exp, expected score and means of values of this process's rows; detached.

    The entropy is `.entropy`; whatever is linear in the pattern is the mean of some values.
    """
    how = _How(ring, causal, _checked_scale(q, k, k, scale))
    return _forward(how, q, k, list(values), energy=True)


@dataclass(frozen=True)
class _How:
    ring: Ring
    causal: bool
    scale: float


def _checked_scale(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> float:
    check_shapes(q, k, v)
    if q.shape[2] != k.shape[2] or q.shape[2] % 2:
        raise ValueError(
            "a shard has as many queries as keys, in two equal chunks; "
            f"got {q.shape[2]} queries, {k.shape[2]} keys"
        )
    return q.shape[-1] ** -0.5 if scale is None else scale


@dataclass(frozen=True)
class _Block:
    """Rows of this process against one piece of keys: all of it, or a causal square."""

    rows: slice
    square: bool


def _pieces(n: int) -> Iterator[slice]:
    """Parts of a shard's slots; none crosses the middle."""
    half = n // 2
    step = max(1, -(-half // (PIECES // 2)))
    for start in (0, half):
        for s in range(start, start + half, step):
            yield slice(s, min(s + step, start + half))


def _blocks(how: _How, n: int, piece: slice, owner: int) -> Iterator[_Block]:
    """What of the rows sees a piece of `owner`'s keys."""
    half, ring = n // 2, how.ring
    first = _position(piece.start, owner, ring, half)
    stop = first + piece.stop - piece.start
    for start, chunk in zip((0, half), ring.chunks(ring.rank), strict=True):
        at = chunk * half  # position of this chunk's first row
        behind = min(max(stop - at, 0), half) if how.causal else 0
        inside = min(max(first - at, 0), half) if how.causal else 0
        if inside < behind:  # the piece lies in this very chunk
            yield _Block(slice(start + inside, start + behind), square=True)
        for s in range(start + behind, start + half, ROWS):
            yield _Block(slice(s, min(s + ROWS, start + half)), square=False)


def _position(slot: int, owner: int, ring: Ring, half: int) -> int:
    front, back = ring.chunks(owner)
    return front * half + slot if slot < half else back * half + slot - half


def _forward(how: _How, q: Tensor, k: Tensor, values: Sequence[Tensor], *, energy: bool) -> Merged:
    widths = [v.shape[-1] for v in values]
    found = Merged.nothing(q, widths, energy=energy)
    for piece in _pieces(q.shape[2]):
        travelling = [x[:, :, piece] for x in (k, *values)]
        for step in range(how.ring.size):
            owner = (how.ring.rank - step) % how.ring.size
            for block in _blocks(how, q.shape[2], piece, owner):
                _see(how, found, q, travelling, block)
            if step + 1 < how.ring.size:
                travelling = how.ring.passed_on(travelling)
    return found


def _see(how: _How, found: Merged, q: Tensor, travelling: Sequence[Tensor], block: _Block) -> None:
    call = _call(how, q, travelling[0], block)
    part = lse.run(call, _wide(travelling[1:]), energy=found.energy is not None, memory=MEMORY)
    merge(found, block.rows, part)


def _wide(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors]


def _call(how: _How, q: Tensor, k: Tensor, block: _Block) -> AttentionCall:
    q, k = _wide([q[:, :, block.rows], k])
    call = call_of(q, k, k, mask=None, causal=block.square, scale=how.scale)
    if not lse.serves(call):
        raise ValueError(
            f"ring attention has no kernel for {q.dtype} on {q.device}: use float32, bfloat16 or "
            "float16"
        )
    return call


class _RingAttention(torch.autograd.Function):
    """(z, log-sum-exp); the second pass makes the weights again from the log-sum-exp."""

    @staticmethod
    def forward(ctx: Any, how: _How, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        found = _forward(how, q, k, [v], energy=False)
        z = found.mixed[0]
        ctx.how = how
        ctx.save_for_backward(q, k, v, z, found.log_sum_exp)
        ctx.mark_non_differentiable(found.log_sum_exp)
        return z.to(v.dtype), found.log_sum_exp

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, z, log_sum_exp = ctx.saved_tensors
        rows = _Rows(q, gradients[0], z, log_sum_exp)
        return None, *_backward(ctx.how, rows, k, v)


@dataclass(frozen=True)
class _Rows:
    """What this process knows of its own rows."""

    q: Tensor
    g: Tensor
    z: Tensor
    log_sum_exp: Tensor


def _backward(how: _How, rows: _Rows, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; those of a piece travel with it, and come home."""
    g_q = torch.zeros_like(rows.q, dtype=rows.z.dtype)
    g_k, g_v = (torch.zeros_like(x, dtype=rows.z.dtype) for x in (k, v))
    for piece in _pieces(rows.q.shape[2]):
        own = [x[:, :, piece] for x in (k, v)]
        travelling = [*own, *(torch.zeros_like(x, dtype=rows.z.dtype) for x in own)]
        for step in range(how.ring.size):
            owner = (how.ring.rank - step) % how.ring.size
            for block in _blocks(how, rows.q.shape[2], piece, owner):
                _pull_back(how, rows, travelling, block, g_q)
            travelling = how.ring.passed_on(travelling)
        g_k[:, :, piece], g_v[:, :, piece] = travelling[2:]
    return g_q.to(rows.q.dtype), g_k.to(k.dtype), g_v.to(v.dtype)


def _pull_back(
    how: _How, rows: _Rows, travelling: Sequence[Tensor], block: _Block, g_q: Tensor
) -> None:
    """Add one block's part to g_q, and to the gradients that travel."""
    k, v, g_k, g_v = travelling
    heads, wide = rows.q.shape[1], rows.z.dtype
    k, v = (per_query_head(x.to(wide), heads) for x in (k, v))
    size = rows.q.shape[0] * heads * k.shape[2] * rows.z.element_size()
    step = max(1, MEMORY // (4 * size))
    for start in range(block.rows.start, block.rows.stop, step):
        some = slice(start, min(start + step, block.rows.stop))
        q, g, z = (x[:, :, some].to(wide) for x in (rows.q, rows.g, rows.z))
        p = (how.scale * q @ k.mT - rows.log_sum_exp[:, :, some, None]).exp()
        if block.square:
            p = p.tril(some.start - block.rows.start)
        g_scores = p * (g @ v.mT - (g * z).sum(-1, keepdim=True)) * how.scale
        g_q[:, :, some] += g_scores @ k
        g_k += _per_kv_head(g_scores.mT @ q, g_k)
        g_v += _per_kv_head(p.mT @ g, g_v)


def _per_kv_head(g: Float[Tensor, "batch head k d"], like: Tensor) -> Tensor:
    return g.unflatten(1, (like.shape[1], -1)).sum(2)
