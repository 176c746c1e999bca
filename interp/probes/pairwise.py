"""Weights of many pairs of a query and a key, given by their flat slots b·T + t."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import AttentionCall
from interp.attention.call import per_query_head
from interp.attention.features import Featured
from interp.probes.matches import Matches

CHUNK = 8 << 20
"""Bytes of pairs at a time: what stays in the cache is worked on faster."""


@dataclass(frozen=True)
class Flat:
    """Queries, keys and log-sum-exps by flat slot."""

    q: Float[Tensor, "slot head d_head"]
    k: Float[Tensor, "slot kv_head d_head"]
    log_sum_exp: Float[Tensor, "slot head"]


def pair_by_pair(
    call: AttentionCall, flat: Flat, matches: Matches, *, memory: int
) -> list[Float[Tensor, "slot head"]]:
    """Each row's weight on its matches, and on the keys after them, where there are few.

    NaN for a row that can see none.
    """
    found = [torch.zeros_like(flat.log_sum_exp) for _ in range(2)]
    seen = [torch.zeros_like(flat.log_sum_exp) for _ in range(2)]
    size = 4 * flat.q.shape[1] * flat.q.shape[2] * flat.q.element_size()
    step = max(1, min(memory, CHUNK) // size)
    for rows, keys in zip(matches.rows.split(step), matches.keys.split(step), strict=True):
        q = flat.q.index_select(0, rows)
        for n, at in enumerate((keys, matches.after[keys])):
            visible = pairs_seen(call, rows, at)
            weight = (_scores(call, q, flat.k.index_select(0, at), rows, at)).sub_(
                flat.log_sum_exp.index_select(0, rows)
            )
            found[n].index_add_(0, rows, weight.exp_().masked_fill_(~visible, 0.0))
            seen[n].index_add_(0, rows, visible.to(weight.dtype).expand_as(weight))
    pairs = zip(found, seen, strict=True)
    return [x.clamp_(max=1.0).masked_fill_(n == 0, float("nan")) for x, n in pairs]


def _scores(
    call: AttentionCall,
    q: Float[Tensor, "pair head d_head"],
    k: Float[Tensor, "pair kv_head d_head"],
    rows: Int[Tensor, " pair"],
    keys: Int[Tensor, " pair"],
) -> Float[Tensor, "pair head"]:
    rule, n = call.visible.rule, call.q.shape[2]
    if isinstance(rule, Featured):
        q, k = rule.of_queries(q, call.scale), rule.of_keys(k, call.scale)
        products = (q * _shared(k, q.shape[1])).sum(-1)
        return products.clamp(min=torch.finfo(products.dtype).tiny).log()
    scores = _shared(k, q.shape[1]).mul_(q).sum(-1).mul_(call.scale)  # in place: k is a copy
    if call.soft_cap is not None:
        scores = call.soft_cap * torch.tanh(scores / call.soft_cap)
    if call.bias is None:
        return scores
    q_pos = positions(call.visible.q_pos, rows, n)[:, None]
    return scores + call.bias(q_pos, positions(call.visible.k_pos, keys, n)[:, None])[:, :, 0, 0]


def _shared(k: Float[Tensor, "pair kv_head d_head"], n_heads: int) -> Tensor:
    return per_query_head(k.transpose(0, 1)[None], n_heads)[0].transpose(0, 1)


def pairs_seen(
    call: AttentionCall, rows: Int[Tensor, " pair"], keys: Int[Tensor, " pair"]
) -> Bool[Tensor, "pair h"]:
    """Whether each row may see its key; both are real tokens."""
    visible, n = call.visible, call.q.shape[2]
    q_pos, k_pos = positions(visible.q_pos, rows, n), positions(visible.k_pos, keys, n)
    seen = visible.rule(q_pos[:, None, None], k_pos[:, None, None])[:, 0]
    if visible.extra is None:
        return seen
    extra = visible.extra
    query = rows % n if extra.shape[2] > 1 else torch.zeros_like(rows)
    return seen & extra.transpose(0, 1)[:, example_of(extra, rows, n), query, keys % n].T


def positions(pos: Int[Tensor, "b pos"], slots: Int[Tensor, "*any"], n: int) -> Int[Tensor, "*any"]:
    """The positions of some flat slots."""
    return pos[example_of(pos, slots, n), slots % n]


def example_of(x: Tensor, slots: Int[Tensor, "*any"], n: int) -> Int[Tensor, "*any"]:
    """Which of x's examples, of which there may be one for all."""
    return slots // n if x.shape[0] > 1 else torch.zeros_like(slots)
