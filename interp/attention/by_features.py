"""Attention calls whose rule gives features of queries and keys in place of a softmax."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head, without_junk
from interp.attention.features import Featured, State, normalised, sums_of_chunks, with_ones

SEGMENT = 2048
"""Tokens whose features are held at a time."""


def featured(call: AttentionCall, rule: Featured) -> Float[Tensor, "batch head q d_value"]:
    """Attention by features at a cost per token that does not depend on the length.

    Queries must be the last slots of the keys, in order; pads may stand anywhere.
    """
    call = without_junk(call)
    wide = torch.promote_types(call.q.dtype, torch.float32)
    heads, n_past = call.q.shape[1], call.k.shape[2] - call.q.shape[2]
    real, v = call.visible.real_k, with_ones(per_query_head(call.v, heads).to(wide))

    def keys(part: slice) -> Tensor:
        k = rule.of_keys(call.k[:, :, part].to(wide), call.scale)
        return per_query_head(k if real is None else _hidden(k, real[:, part]), heads)

    def queries(part: slice) -> Tensor:
        return rule.of_queries(call.q[:, :, part].to(wide), call.scale)

    n_seen = n_past if rule.causal else call.k.shape[2]
    state = None if call.past is None else per_query_head(call.past, heads)
    for part in _segments(0, n_seen):
        added = keys(part).mT @ v[:, :, part]
        state = added if state is None else state + added
    mixed = _behind(state, queries, keys, v, n_past) if rule.causal else _over(state, queries, call)
    z = normalised(mixed).to(call.v.dtype)
    return z if call.visible.real_q is None else _hidden(z, call.visible.real_q)


Part = Callable[[slice], Tensor]


def _behind(state: State | None, queries: Part, keys: Part, v: Tensor, n_past: int) -> Tensor:
    mixed = []
    for part in _segments(n_past, v.shape[2]):
        q = queries(slice(part.start - n_past, part.stop - n_past))
        sums, state = sums_of_chunks(q, keys(part), v[:, :, part], state=state)
        mixed.append(sums)
    return torch.cat(mixed, 2)


def _over(state: State | None, queries: Part, call: AttentionCall) -> Tensor:
    assert state is not None
    return torch.cat([queries(part) @ state for part in _segments(0, call.q.shape[2])], 2)


def _segments(start: int, stop: int) -> list[slice]:
    return [slice(s, min(s + SEGMENT, stop)) for s in range(start, stop, SEGMENT)]


def _hidden(x: Float[Tensor, "batch head n d"], real: Bool[Tensor, "batch n"]) -> Tensor:
    return x.masked_fill(~real[:, None, :, None], 0.0)


def in_slot_order(call: AttentionCall) -> bool:
    """Whether the sums can run over slots: no further mask, and the queries come last."""
    visible = call.visible
    if call.past is not None:
        return True
    known = visible.in_order or visible.real_k is not None
    return known and visible.extra is None and visible.n_q <= visible.n_k


def log_similarity(
    call: AttentionCall, rows: slice | Tensor = slice(None)
) -> Float[Tensor, "batch head rows k"]:
    """Log φ(q)·φ(k) of every pair up to a constant a row, −inf where masked.

    Raises:
        ValueError: Features have signs, and their products no logarithm.
    """
    if has_signed_weights(call):
        raise ValueError(
            "trigonometric features give weights that may be negative: they have no scores and no "
            "entropy; read hook_pattern, or use kind='positive'"
        )
    _check_all_keys(call)
    product = _similarity(call, rows)
    masked = ~call.visible.grid(rows)
    return product.clamp(min=torch.finfo(product.dtype).tiny).log().masked_fill(masked, -torch.inf)


def has_signed_weights(call: AttentionCall) -> bool:
    """Whether this call's weights may be negative."""
    rule = call.visible.rule
    return isinstance(rule, Featured) and not rule.positive


def signed_weights(
    call: AttentionCall, rows: slice | Tensor = slice(None)
) -> Float[Tensor, "batch head rows k"]:
    """Weights that sum to 1 and may be negative; zeros for a row that sees nothing."""
    _check_all_keys(call)
    product = _similarity(call, rows).masked_fill(~call.visible.grid(rows), 0.0)
    total = product.sum(-1, keepdim=True)
    return product / total.masked_fill(total == 0, 1.0)


def _check_all_keys(call: AttentionCall) -> None:
    if call.past is not None:
        raise ValueError(
            "this layer's cache keeps a state in place of earlier keys, so it has no pattern; "
            "use new_kv_cache() without a kind to read it"
        )


def _similarity(call: AttentionCall, rows: slice | Tensor) -> Float[Tensor, "batch head rows k"]:
    rule = call.visible.rule
    assert isinstance(rule, Featured)
    wide = torch.promote_types(call.q.dtype, torch.float32)
    q = rule.of_queries(call.q[:, :, rows].to(wide), call.scale)
    k = rule.of_keys(call.k.to(wide), call.scale)
    return q @ per_query_head(k, q.shape[1]).mT


def check_plain(call: AttentionCall) -> None:
    """Refuse what only softmax has.

    Raises:
        ValueError: The call has a bias or a soft cap of scores.
    """
    if call.bias is not None or call.soft_cap is not None:
        raise ValueError(
            f"{type(call.visible.rule).__name__} attention has no scores before a softmax: "
            "it takes neither a bias (ALiBi) nor a soft cap"
        )
