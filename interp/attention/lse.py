"""Fused attention that also tells its log-sum-exp, with any values, several of them in one run.

PyTorch's own kernels return the log-sum-exp that they need for their backward pass. Values that
are wider than q and k are run by giving q and k zeros to the same width: one such run is faster
than several narrow ones.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head
from interp.attention.features import Featured
from interp.attention.masks import Causal, Full
from interp.attention.tiles import of_heads, tiles

Op = Callable[[Tensor, Tensor, Tensor, bool, Tensor | None, float], tuple[Tensor, Tensor]]

CHUNK = 8 << 20
"""Bytes of packed buffers at a time: small ones stay in the cache, and many runs wait for their
threads."""


def _flash_cpu(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return flash(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)


def _efficient_cuda(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    out, lse, _, _ = efficient(q, k, v, mask, True, 0.0, causal, scale=scale)
    return out, lse[..., : q.shape[2]]  # its rows are padded to a multiple of 32


def serves(call: AttentionCall) -> bool:
    """Whether a fused kernel gives this call's log-sum-exp on its device.

    The flash kernels of CUDA want half precision, which rounds p·K: only its memory-efficient
    kernel is used there, and only where it needs no mask spelled out.
    """
    if isinstance(call.visible.rule, Featured):
        return False
    if call.soft_cap is not None or min(call.q.shape) == 0 or call.visible.n_k == 0:
        return False
    if call.q.device.type == "cpu":
        return call.q.dtype in (torch.float32, torch.float64)
    if call.q.device.type == "cuda" and call.bias is None and call.q.dtype == torch.float32:
        capable = torch.cuda.get_device_capability(call.q.device) >= (5, 0)
        return capable and (_is_square_causal(call) or _sees_all(call))
    return False


@dataclass(frozen=True)
class Fused:
    """What one fused run gives.

    Attributes:
        log_sum_exp: Natural, [B H Tq]; −inf where a row sees nothing.
        energy: The expected score scale·q·(p K) (without bias), [B H Tq], or None.
        mixed: p V for each of the values, [B H Tq F]; 0 where a row sees nothing.
    """

    log_sum_exp: Tensor
    energy: Tensor | None
    mixed: list[Tensor]


def run(call: AttentionCall, values: Sequence[Tensor], *, energy: bool, memory: int) -> Fused:
    """Mix several values by a call's pattern in one run, some heads at a time.

    Args:
        call: One that `serves` says yes to, without junk in slots that nobody sees.
        values: Each [B|1, H|K|1, Tk, F].
        energy: Whether to mix the keys too, for the expected score.
        memory: Bytes for the buffers that a run takes.
    """
    if _is_square_causal(call) and not call.visible.in_order:
        return _compacted(call, values, energy=energy, memory=memory)
    batch, n_heads, n_q, d_head = call.q.shape
    values = [_for_heads(v, call) for v in values]
    width = _width(call, _total(values) + (d_head if energy else 0))
    keys = (1 if energy else 2) * call.visible.n_k  # with the energy, one buffer is both k and v
    each = batch * (2 * n_q + keys) * width * call.q.element_size()
    step = _heads_at_once(batch, each, memory)
    if step >= n_heads:
        return _pads_cleared(call, _run_packed(call, values, energy, width, memory))
    found = Fused(
        call.q.new_empty(batch, n_heads, n_q),
        call.q.new_empty(batch, n_heads, n_q) if energy else None,
        # Heads beside each other in memory, as W_O reads them.
        [call.q.new_empty(batch, n_q, n_heads, v.shape[-1]).transpose(1, 2) for v in values],
    )
    for start in range(0, n_heads, step):
        heads = slice(start, min(start + step, n_heads))
        some = [v[:, heads] if v.shape[1] > 1 else v for v in values]
        part = _run_packed(of_heads(call, heads), some, energy, width, memory)
        found.log_sum_exp[:, heads] = part.log_sum_exp
        if found.energy is not None and part.energy is not None:
            found.energy[:, heads] = part.energy
        for whole, mixed in zip(found.mixed, part.mixed, strict=True):
            whole[:, heads] = mixed
    return _pads_cleared(call, found)


def _heads_at_once(batch: int, each: int, memory: int) -> int:
    """As many heads as `CHUNK` holds, but a whole number of examples' heads for every thread.

    The kernel gives each thread a stretch of the rows of all heads. Under a causal rule the later
    rows of a head take longer: a head that two threads share keeps one of them waiting.
    """
    threads = torch.get_num_threads()
    even = threads // math.gcd(threads, batch)
    step = min(memory, CHUNK) // each // even * even
    return step or max(1, min(memory // each, even))


def _run_packed(
    call: AttentionCall, values: Sequence[Tensor], energy: bool, width: int, memory: int
) -> Fused:
    """One run of some heads, with the keys among the values where the energy is asked for."""
    shared = per_query_head(call.k, call.q.shape[1])
    parts = [shared, *values] if energy else list(values)
    q = _side_by_side([call.q], width)
    if energy:  # the keys come first among the values, and what follows them meets q's zeros
        k = v = _side_by_side(parts, width, like=shared)
    else:
        k = _side_by_side([shared], width)
        v = _side_by_side(parts, width, like=shared) if parts else k
    out, log_sum_exp = _masked_run(replace(call, q=q, k=k, v=v), memory)
    spare = width - _total(parts)
    mixed = list(out.split([*(p.shape[-1] for p in parts), spare], -1))[:-1]
    if not energy:
        return Fused(log_sum_exp, None, mixed)
    return Fused(log_sum_exp, call.scale * (call.q * mixed[0]).sum(-1), mixed[1:])


def _for_heads(v: Tensor, call: AttentionCall) -> Tensor:
    return v if v.shape[1] == 1 else per_query_head(v, call.q.shape[1])


def _width(call: AttentionCall, total: int) -> int:
    """How wide q, k and values are made: CUDA's kernel wants its rows aligned.

    On the CPU, 8 × 2,048 rows of 65 columns take 8.9 ms a head, of 67 9.7, 68 8.9, 71 10.6 and
    72 9.2: matrix products like what is left over eight columns to be 1, 2 or 4.
    """
    d_head = call.q.shape[-1]
    if call.q.is_cuda:
        return -(-max(total, d_head) // 8) * 8
    left = total % 8
    return d_head if total <= d_head else total - left + (0, 1, 2, 4, 4, 8, 8, 8)[left]


def _total(parts: Sequence[Tensor]) -> int:
    return sum(p.shape[-1] for p in parts)


def _side_by_side(parts: Sequence[Tensor], width: int, like: Tensor | None = None) -> Tensor:
    """The parts beside each other and zeros behind them, their last axis without gaps."""
    first = parts[0] if like is None else like
    if len(parts) == 1 and parts[0].shape == (*first.shape[:3], width):
        return parts[0] if parts[0].stride(-1) == 1 else parts[0].contiguous()
    packed = first.new_empty(*first.shape[:3], width)
    end = 0
    for part in parts:
        packed[..., end : end + part.shape[-1]] = part
        end += part.shape[-1]
    packed[..., end:] = 0.0
    return packed


def _masked_run(call: AttentionCall, memory: int) -> tuple[Tensor, Tensor]:
    op: Op = _flash_cpu if call.q.device.type == "cpu" else _efficient_cuda
    if _is_square_causal(call):
        return op(call.q, call.k, call.v, True, None, call.scale)
    if _sees_all(call):
        return op(call.q, call.k, call.v, False, None, call.scale)
    parts = [_spelled_run(op, tile.call) for tile in tiles(call, memory)]
    out, lse = (torch.cat(x, 2) for x in zip(*parts, strict=True))
    return out, lse


def _spelled_run(op: Op, call: AttentionCall) -> tuple[Tensor, Tensor]:
    """A run whose mask is spelled out; the kernel says 0 for a row that sees nothing."""
    mask = _spelled_out(call)
    out, lse = op(call.q, call.k, call.v, False, mask, call.scale)
    empty = (mask == float("-inf")).all(-1)
    return out.masked_fill(empty[..., None], 0.0), lse.masked_fill(empty, float("-inf"))


def _spelled_out(call: AttentionCall) -> Float[Tensor, "batch head q k"]:
    """Mask and bias as numbers that are added to the scores."""
    seen = call.visible.grid()
    added = call.q.new_zeros(())
    if call.bias is not None:
        added = call.bias(call.visible.q_pos, call.visible.k_pos).to(call.q.dtype)
    mask = torch.where(seen, added, float("-inf"))
    heads = call.q.shape[1] if mask.shape[1] > 1 else 1
    return mask.expand(call.q.shape[0], heads, -1, -1)


def _is_square_causal(call: AttentionCall) -> bool:
    visible = call.visible
    plain = call.bias is None and visible.extra is None and isinstance(visible.rule, Causal)
    known = visible.in_order or visible.real_k is not None
    return plain and known and visible.n_q == visible.n_k


def _sees_all(call: AttentionCall) -> bool:
    visible = call.visible
    whole = visible.real_q is None and visible.real_k is None and visible.extra is None
    return call.bias is None and whole and isinstance(visible.rule, Full)


def _compacted(
    call: AttentionCall, values: Sequence[Tensor], *, energy: bool, memory: int
) -> Fused:
    """Real tokens first, one run with the causal flag, and back to their places."""
    visible, order, back = call.visible.compacted()
    q, k, v = (reordered(x, order) for x in (call.q, call.k, call.v))
    moved = [reordered(x, order) for x in values]
    call = replace(call, q=q, k=k, v=v, visible=visible)
    done = run(call, moved, energy=energy, memory=memory)
    return Fused(
        _rows_back(done.log_sum_exp, back),
        None if done.energy is None else _rows_back(done.energy, back),
        [reordered(x, back) for x in done.mixed],
    )


def _rows_back(x: Float[Tensor, "batch head q"], back: Tensor) -> Tensor:
    return reordered(x[..., None], back)[..., 0]


def reordered(x: Float[Tensor, "b head n d"], order: Tensor) -> Float[Tensor, "batch head n d"]:
    """Slots in another order, one for each example."""
    x = x.expand(order.shape[0], -1, -1, -1)
    return x.gather(2, order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def _pads_cleared(call: AttentionCall, done: Fused) -> Fused:
    """Rows of pads see nothing, but under a causal flag the kernel does not know."""
    real = call.visible.real_q
    if real is None or not _is_square_causal(call):
        return done
    empty = ~real[:, None]
    return Fused(
        done.log_sum_exp.masked_fill(empty, float("-inf")),
        None if done.energy is None else done.energy.masked_fill(empty, 0.0),
        [x.masked_fill(empty[..., None], 0.0) for x in done.mixed],
    )
