"""Which rules have a computation that skips what they mask, and when it is taken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.banded import banded, rows_apart
from interp.attention.bigbird import BigBird
from interp.attention.block_sparse import block_sparse
from interp.attention.call import AttentionCall
from interp.attention.longformer import Longformer
from interp.attention.masks import Visible
from interp.attention.streaming import Streaming
from interp.attention.window import Window

WORTH = 2
"""How many times more keys there must be than a row sees, before skipping pays."""

SHORTEST, SHORTEST_PADDED = 256, 512
"""Fewer keys than this are faster with a mask; padded examples, done one by one, need more."""


def window(call: AttentionCall, rule: Window) -> Tensor:
    """A band of the window's width."""
    return banded(call, before=rule.window - 1)


def streaming(call: AttentionCall, rule: Streaming) -> Tensor:
    """A band, and the sinks in front of it."""
    return banded(call, before=rule.window - 1, far=tuple(range(rule.sinks)))


def longformer(call: AttentionCall, rule: Longformer) -> Tensor:
    """A band, global keys in front of it, and the rows of global queries done apart."""
    z = banded(call, before=rule.before, after=rule.after, far=rule.global_tokens)
    offset, n_q = call.k.shape[2] - call.q.shape[2], call.q.shape[2]
    near = rule.window if rule.causal else 0  # these see nothing beyond their band
    rows = [t - offset for t in rule.global_tokens if t >= near and 0 <= t - offset < n_q]
    return rows_apart(call, z, rows)


def bigbird(call: AttentionCall, rule: BigBird) -> Tensor:
    """Gathered blocks of keys."""
    return block_sparse(call, rule.table, size=rule.block, full_from=rule.full_from)


ROUTES: dict[type, Callable[[AttentionCall, Any], Tensor]] = {
    Window: window,
    Streaming: streaming,
    Longformer: longformer,
    BigBird: bigbird,
}
"""By the type of the rule: a function of a call without pads, and the rule. Such a rule says in
`reach` how many keys an ordinary row sees."""


def can_skip(call: AttentionCall) -> bool:
    """Whether this call has such a computation, and enough keys for it to pay."""
    visible = call.visible
    rule: Any = visible.rule
    if type(rule) not in ROUTES or visible.extra is not None or visible.n_q > visible.n_k:
        return False
    padded = visible.real_q is not None or visible.real_k is not None
    least = max(WORTH * rule.reach, SHORTEST_PADDED if padded else SHORTEST)
    return visible.n_k >= least and _consecutive(visible)


def skipping(call: AttentionCall) -> Float[Tensor, "batch head q d_value"]:
    """Attention at a cost of queries × keys seen. Padded examples are done one by one."""
    route, visible = ROUTES[type(call.visible.rule)], call.visible
    if visible.real_q is None and visible.real_k is None:
        return route(call, visible.rule)
    rows = []
    for example in range(call.q.shape[0]):
        alone, slots = _without_pads(call, example)
        z = call.v.new_zeros(1, call.q.shape[1], visible.n_q, call.v.shape[3])
        some = route(alone, visible.rule) if len(slots) else z[:, :, :0]
        rows.append(z.index_copy(2, slots, some))
    return torch.cat(rows)


def _consecutive(visible: Visible) -> bool:
    """Whether real keys stand at 0, 1, 2, … and the queries are the last of them."""
    if visible.real_q is None and visible.real_k is None:
        return visible.in_order
    last = None
    for real, position in ((visible.real_k, visible.k_pos), (visible.real_q, visible.q_pos)):
        real = torch.ones_like(position, dtype=torch.bool) if real is None else real
        first = 0 if last is None else last - real.sum(-1, keepdim=True)
        expected = real.cumsum(-1) - 1 + first
        if not bool(((position == expected) | ~real).all()):
            return False
        last = real.sum(-1, keepdim=True)
    return True


def _without_pads(call: AttentionCall, example: int) -> tuple[AttentionCall, Tensor]:
    """One example's real tokens as a call of its own, and the slots of its queries."""
    visible, device = call.visible, call.q.device
    rows, keys = (
        torch.arange(n, device=device) if real is None else real[example].nonzero()[:, 0]
        for n, real in ((visible.n_q, visible.real_q), (visible.n_k, visible.real_k))
    )
    position = torch.arange(len(keys), device=device)[None]
    alone = Visible(visible.rule, q_pos=position[:, len(keys) - len(rows) :], k_pos=position)
    q, k, v = (
        x[example : example + 1].index_select(2, slots)
        for x, slots in ((call.q, rows), (call.k, keys), (call.v, keys))
    )
    return replace(call, q=q, k=k, v=v, visible=alone), rows
