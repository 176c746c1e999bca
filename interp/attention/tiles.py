"""Walk the scores of an attention call some queries at a time, so that no n×n tensor is held."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head
from interp.attention.masks import Causal, Visible, Window

MEMORY = 64 << 20
"""Bytes that a walk may hold at a time, by default (at least one row of every head is held)."""

LIVE = 4
"""How many tensors of a tile's size a walk keeps alive at once."""


@dataclass(frozen=True)
class Tile:
    """Some queries with the keys that they can see, out of a larger call."""

    rows: slice
    keys: slice
    call: AttentionCall


def tiles(call: AttentionCall, memory: int = MEMORY) -> Iterator[Tile]:
    """Cut a call into runs of queries whose scores fit in `memory` bytes.

    Under a causal or window rule, keys that no query of the tile can see are left out.
    """
    size = call.q.shape[0] * call.q.shape[1] * call.visible.n_k * call.q.element_size() * LIVE
    step = max(1, memory // max(1, size))
    for start in range(0, call.visible.n_q, step):
        rows = slice(start, min(start + step, call.visible.n_q))
        keys = _within_reach(call.visible, rows)
        yield Tile(rows, keys, cropped(call, rows, keys))


def _within_reach(visible: Visible, rows: slice) -> slice:
    """The slots that hold every key these rows may see; never empty."""
    rule, end = visible.rule, visible.n_k
    if not visible.in_order or not isinstance(rule, Causal | Window):
        return slice(0, end)
    pos = visible.q_pos[:, rows]
    stop = min(end, max(1, int(pos.max()) + 1))
    start = int(pos.min()) - rule.window + 1 if isinstance(rule, Window) else 0
    return slice(min(max(0, start), stop - 1), stop)


def cropped(
    call: AttentionCall, rows: slice | Tensor = slice(None), keys: slice = slice(None)
) -> AttentionCall:
    """The same attention for some query slots and some key slots."""
    visible = call.visible
    extra = visible.extra
    if extra is not None:
        extra = extra if extra.shape[2] == 1 else extra[:, :, rows]
        extra = extra[..., keys]
    seen = replace(
        visible,
        q_pos=visible.q_pos[:, rows],
        k_pos=visible.k_pos[:, keys],
        real_q=None if visible.real_q is None else visible.real_q[:, rows],
        real_k=None if visible.real_k is None else visible.real_k[:, keys],
        extra=extra,
        in_order=False,
    )
    q, k, v = call.q[:, :, rows], call.k[:, :, keys], call.v[:, :, keys]
    return replace(call, q=q, k=k, v=v, visible=seen)


def of_heads(call: AttentionCall, heads: slice | Tensor) -> AttentionCall:
    """The call of some query heads, each with its own copy of the keys that it shares."""
    n_heads = call.q.shape[1]
    extra, bias = call.visible.extra, call.bias
    if extra is not None and extra.shape[1] > 1:
        extra = extra[:, heads]
    return replace(
        call,
        q=call.q[:, heads],
        k=per_query_head(call.k, n_heads)[:, heads],
        v=per_query_head(call.v, n_heads)[:, heads],
        visible=replace(call.visible, extra=extra),
        bias=None if bias is None else lambda q_pos, k_pos: _some(bias(q_pos, k_pos), heads),
    )


def _some(x: Tensor, heads: slice | Tensor) -> Tensor:
    return x if x.shape[1] == 1 else x[:, heads]


def chosen_of(name: str, which: Sequence[int] | Tensor, q: Tensor, *, axis: int) -> Tensor:
    """The queries (axis 2) or heads (axis 1) that are asked for, as a tensor.

    Raises:
        ValueError: There is no such one.
    """
    chosen, n = torch.as_tensor(which, device=q.device), q.shape[axis]
    if chosen.dtype != torch.bool and chosen.numel():
        least, most = int(chosen.min()), int(chosen.max())
        if least < -n or most >= n:
            raise ValueError(f"{name} must lie in [0, {n}), got {least} … {most}")
    return chosen


def log_sum_exp_of(scores: Float[Tensor, "batch head q k"]) -> Float[Tensor, "batch head q"]:
    """Natural log of the sum of exponentials over keys; −inf, without gradients, for no key."""
    empty = (scores == float("-inf")).all(-1)
    return scores.masked_fill(empty[..., None], 0.0).logsumexp(-1).masked_fill(empty, float("-inf"))


def weights_of(
    scores: Float[Tensor, "batch head q k"], log_sum_exp: Float[Tensor, "batch head q"]
) -> tuple[Float[Tensor, "batch head q k"], Float[Tensor, "batch head q k"]]:
    """Weights p = exp(s − L), and log p with 0 where p is 0, so that p·log p is right there."""
    floor = log_sum_exp.masked_fill(log_sum_exp == float("-inf"), 0.0)  # a row that sees nothing
    log_p = scores - floor[..., None]
    p = log_p.exp()
    return p, log_p.masked_fill(p == 0, 0.0)


def widened(call: AttentionCall) -> AttentionCall:
    """The call with q and k in float32 or better."""
    wide = torch.promote_types(call.q.dtype, torch.float32)
    return replace(call, q=call.q.to(wide), k=call.k.to(wide))
