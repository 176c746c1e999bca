"""Softmax attention: one definition, and a fused route that must agree with it.

The materialised route holds scores and pattern, for hooks to read or replace. The fused route is
PyTorch's scaled_dot_product_attention, given only what it handles, in tiles of queries where a
mask or bias must be spelled out, so that nothing of size n×n is held; rules that see few keys have
routes of their own.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention.by_features import (
    check_plain,
    featured,
    has_signed_weights,
    in_slot_order,
    log_similarity,
    signed_weights,
)
from interp.attention.call import TILE, AttentionCall, per_query_head, without_junk
from interp.attention.features import Featured
from interp.attention.masks import Causal, Full, Visible
from interp.attention.routes import can_skip, skipping
from interp.attention.widths import sdpa
from interp.hooks import SILENT, Tap

Kernel = Callable[[AttentionCall, Tap], Tensor]
"""Computes z [B H Tq d_value] of a call; offers scores and pattern to the tap if it wants them."""


def attend(call: AttentionCall, tap: Tap = SILENT) -> Float[Tensor, "batch head q d_value"]:
    """Attention by the fused route, unless a hook wants what only the materialised one holds."""
    if tap.wants("hook_attn_scores", "hook_pattern"):
        return materialised(call, tap)
    return fused(call)


def materialised(call: AttentionCall, tap: Tap = SILENT) -> Tensor:
    """Attention with its scores and pattern held in memory, for `tap` to read or replace."""
    call = without_junk(call)
    pattern = pattern_of(call, tap=tap)
    v = per_query_head(call.v, call.q.shape[1])
    return (pattern.to(v.dtype) @ v).to(call.v.dtype)


def scores_of(call: AttentionCall, rows: slice = slice(None)) -> Float[Tensor, "batch head rows k"]:
    """Scores before softmax, −inf where masked, float32 or better.

    Of attention by features, the log of φ(q)·φ(k): its softmax is the pattern that they imply.
    """
    if isinstance(call.visible.rule, Featured):
        check_plain(call)
        return log_similarity(call, rows)
    q, k = call.q[:, :, rows], per_query_head(call.k, call.q.shape[1])
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(wide) @ k.to(wide).mT) * call.scale
    if call.soft_cap is not None:
        scores = call.soft_cap * torch.tanh(scores / call.soft_cap)
    if call.bias is not None:
        scores = scores + call.bias(call.visible.q_pos[:, rows], call.visible.k_pos)
    return scores.masked_fill(~call.visible.grid(rows), float("-inf"))


def pattern_of(
    call: AttentionCall, rows: slice = slice(None), *, tap: Tap = SILENT
) -> Float[Tensor, "batch head rows k"]:
    """Softmax of the scores; a row that sees nothing is all zeros.

    With a sink b, p_j = exp(s_j) / (exp(b) + Σ exp(s)): a row sums to less than 1, and what is
    missing went to the sink. Source: Miller 2023, "Attention Is Off By One" (there b = 0).
    """
    if has_signed_weights(call) and not tap.wants("hook_attn_scores"):
        return tap("hook_pattern", signed_weights(call, rows))
    scores = tap("hook_attn_scores", scores_of(call, rows))
    if call.sink is None:
        return softmax(scores, tap)
    sink = call.sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    return tap("hook_pattern", torch.cat([sink, scores], -1).softmax(-1)[..., 1:])


def softmax(
    scores: Float[Tensor, "batch head q k"], tap: Tap = SILENT
) -> Float[Tensor, "batch head q k"]:
    """Softmax over keys; a row of −inf gives zeros, and finite gradients."""
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    pattern = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return tap("hook_pattern", pattern)


def fused(call: AttentionCall) -> Float[Tensor, "batch head q d_value"]:
    """The same numbers without scores or pattern in memory."""
    rule = call.visible.rule
    if isinstance(rule, Featured):
        check_plain(call)
        return featured(call, rule) if in_slot_order(call) else _in_row_tiles(call)
    if call.sink is None and can_skip(call):
        return skipping(call)
    if call.soft_cap is not None or call.sink is not None:
        return _in_row_tiles(call)
    call, visible = without_junk(call), call.visible
    plain = call.bias is None and visible.extra is None
    if plain and isinstance(visible.rule, Causal) and visible.n_q == visible.n_k > 1:
        if visible.in_order:
            return _empty_rows_zero(_sdpa(call, is_causal=True), visible.real_q)
        return _compacted(call)
    if plain and visible.real_k is None and visible.real_q is None and _sees_all(visible):
        return _sdpa(call)
    return _in_mask_tiles(call)


def _sees_all(visible: Visible) -> bool:
    if isinstance(visible.rule, Full):
        return True
    return isinstance(visible.rule, Causal) and visible.n_q == 1 and visible.in_order


def _sdpa(call: AttentionCall, **how: Tensor | bool | None) -> Tensor:
    heads = call.q.shape[1]
    q, k, v = (
        x if x.stride(-1) == 1 else x.contiguous()
        for x in (call.q, per_query_head(call.k, heads), per_query_head(call.v, heads))
    )
    return sdpa(q, k, v, scale=call.scale, **how)


def _in_mask_tiles(call: AttentionCall) -> Tensor:
    """Masks and biases are spelled out for some rows at a time."""
    visible = call.visible
    wide = call.q.shape[0] * (1 if call.bias is None else call.q.shape[1]) * visible.n_k
    step = max(1, TILE // max(1, wide))
    tiles = []
    for start in range(0, max(visible.n_q, 1), step):
        rows = slice(start, start + step)
        mask = visible.grid(rows)
        if call.bias is not None:
            bias = call.bias(visible.q_pos[:, rows], visible.k_pos).to(call.q.dtype)
            mask = bias.masked_fill(~mask, float("-inf"))
        shape = (call.q.shape[0], call.q.shape[1] if mask.shape[1] > 1 else 1)
        some = replace(call, q=call.q[:, :, rows])
        tiles.append(_sdpa(some, attn_mask=mask.expand(*shape, -1, -1)))
    return torch.cat(tiles, 2) if len(tiles) > 1 else tiles[0]


def _in_row_tiles(call: AttentionCall) -> Tensor:
    """The materialised route for some rows at a time: right for any score function."""
    call = without_junk(call)
    step = max(1, TILE // max(1, call.q.shape[0] * call.q.shape[1] * call.visible.n_k))
    v = per_query_head(call.v, call.q.shape[1])
    starts = range(0, max(call.visible.n_q, 1), step)
    tiles = [pattern_of(call, slice(s, s + step)).to(v.dtype) @ v for s in starts]
    return torch.cat(tiles, 2) if len(tiles) > 1 else tiles[0]


def _compacted(call: AttentionCall) -> Tensor:
    """Real tokens first, one run with the causal flag, and back to their places."""
    visible, order, back = call.visible.compacted()
    q, k, v = (_reordered(x, order) for x in (call.q, call.k, call.v))
    z = fused(replace(call, q=q, k=k, v=v, visible=visible))
    return _reordered(z, back)


def _reordered(x: Float[Tensor, "batch head n d"], order: Tensor) -> Tensor:
    return x.gather(2, order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def _empty_rows_zero(z: Tensor, real_q: Bool[Tensor, "batch q"] | None) -> Tensor:
    return z if real_q is None else z.masked_fill(~real_q[:, None, :, None], 0.0)
