"""Attention calls whose rule gives features of queries and keys in place of a softmax."""

from dataclasses import dataclass

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
    parts = _Parts(without_junk(call), rule)
    n_past, n_k = call.k.shape[2] - call.q.shape[2], call.k.shape[2]
    state = None if call.past is None else per_query_head(call.past, call.q.shape[1])
    for part in _segments(0, n_past if rule.causal else n_k):
        added = parts.keys(part).mT @ parts.values(part)
        state = added if state is None else state + added
    tiles = _behind(state, parts, n_past) if rule.causal else _over(state, parts)
    z = torch.cat(tiles, 2)
    return z if call.visible.real_q is None else _hidden(z, call.visible.real_q)


@dataclass(frozen=True)
class _Parts:
    """Features and values of a segment, made when they are needed: nothing long is held."""

    call: AttentionCall
    rule: Featured

    def keys(self, part: slice) -> Float[Tensor, "batch head n feature"]:
        k = self.rule.of_keys(self._wide(self.call.k[:, :, part]), self.call.scale)
        real = self.call.visible.real_k
        return self._shared(k if real is None else _hidden(k, real[:, part]))

    def values(self, part: slice) -> Float[Tensor, "batch head n d_value_and_1"]:
        return self._shared(with_ones(self._wide(self.call.v[:, :, part])))

    def queries(self, part: slice) -> Float[Tensor, "batch head n feature"]:
        return self.rule.of_queries(self._wide(self.call.q[:, :, part]), self.call.scale)

    def narrowed(self, mixed: Tensor) -> Float[Tensor, "batch head n d_value"]:
        return normalised(mixed).to(self.call.v.dtype)

    def _shared(self, x: Tensor) -> Tensor:
        return per_query_head(x, self.call.q.shape[1])

    def _wide(self, x: Tensor) -> Tensor:
        return x.to(torch.promote_types(x.dtype, torch.float32))


def _behind(state: State | None, parts: _Parts, n_past: int) -> list[Tensor]:
    found = []
    for part in _segments(n_past, parts.call.k.shape[2]):
        q = parts.queries(slice(part.start - n_past, part.stop - n_past))
        mixed, state = sums_of_chunks(q, parts.keys(part), parts.values(part), state=state)
        found.append(parts.narrowed(mixed))
    return found


def _over(state: State | None, parts: _Parts) -> list[Tensor]:
    assert state is not None
    some = _segments(0, parts.call.q.shape[2])
    return [parts.narrowed(parts.queries(part) @ state) for part in some]


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
    if call.bias is not None or call.soft_cap is not None or call.sink is not None:
        raise ValueError(
            f"{type(call.visible.rule).__name__} attention has no scores before a softmax: "
            "it takes neither a bias (ALiBi) nor a soft cap nor a sink"
        )
