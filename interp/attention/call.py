"""One layer's attention call: queries, keys, values, and who may see whom."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention.masks import Visible

TILE = 1 << 24
"""How many mask or bias entries the fused route spells out at a time."""


@dataclass(frozen=True)
class AttentionCall:
    """What one layer's attention is given.

    Attributes:
        q: Queries, rotated where the model rotates them.
        k: Keys; their heads may divide the queries' (grouped-query attention).
        v: Values.
        visible: Who may see whom.
        scale: What q·k is multiplied with.
        bias: A function of positions added to the scores, or None.
        soft_cap: Scores become cap·tanh(score / cap) before bias and mask, or None.
        layer: Which layer is asking.
        sink: A number a head that competes with the scores for weight, or None.
        past: What attention by features remembers of tokens before these keys, or None.
    """

    q: Float[Tensor, "batch head q d_head"]
    k: Float[Tensor, "batch kv_head k d_head"]
    v: Float[Tensor, "batch kv_head k d_value"]
    visible: Visible
    scale: float
    bias: Callable[[Tensor, Tensor], Tensor] | None = None
    soft_cap: float | None = None
    layer: int = 0
    sink: Float[Tensor, " head"] | None = None
    past: Float[Tensor, "batch kv_head feature d_value_and_1"] | None = None


def per_query_head(
    x: Float[Tensor, "batch kv_head k d"], n_heads: int
) -> Float[Tensor, "batch head k d"]:
    """Keys or values repeated for the query heads that share them."""
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)


def without_junk(call: AttentionCall) -> AttentionCall:
    """The call with key and value slots that no query may see set to 0, whatever stood there."""
    visible = call.visible
    if visible.real_k is None and visible.extra is None:
        return call
    unseen = ~_seen_slots(visible)
    if visible.extra is not None:
        groups = unseen.shape[1] if unseen.shape[1] == 1 else call.k.shape[1]
        unseen = unseen.unflatten(1, (groups, -1)).all(2)
    hide = unseen[..., None]
    return replace(call, k=call.k.masked_fill(hide, 0.0), v=call.v.masked_fill(hide, 0.0))


def _seen_slots(visible: Visible) -> Bool[Tensor, "b h k"]:
    if visible.extra is None:
        assert visible.real_k is not None
        return visible.real_k[:, None]
    step = max(1, TILE // max(1, visible.n_k * visible.extra.shape[0] * visible.extra.shape[1]))
    seen = visible.grid(slice(0, step)).any(-2)
    for start in range(step, visible.n_q, step):
        seen = seen | visible.grid(slice(start, start + step)).any(-2)
    return seen
