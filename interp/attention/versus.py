"""One pattern against another over the same keys."""

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head
from interp.attention.kernels import scores_of
from interp.attention.masks import Visible
from interp.attention.moments import Route, chosen_route, moments
from interp.attention.tiles import cropped, log_sum_exp_of, tiles, weights_of


def divergence(
    ours: AttentionCall, theirs: AttentionCall, *, memory: int, route: Route
) -> Float[Tensor, "batch head q"]:
    """KL(ours ‖ theirs) of each row, in nats; 0 where ours sees nothing.

    With a kernel it is E_p[s] − E_p[s'] − L + L', where E_p[s'] = scale'·q'·(p K').

    Raises:
        ValueError: The two are not over the same queries and keys.
    """
    mine, other = (ours.visible.n_q, ours.visible.n_k), (theirs.visible.n_q, theirs.visible.n_k)
    if mine != other or ours.q.shape[:2] != theirs.q.shape[:2]:
        raise ValueError(
            "patterns can be compared over the same batch, heads, queries and keys; "
            f"got q {list(ours.q.shape)} with {mine[1]} keys and "
            f"q {list(theirs.q.shape)} with {other[1]}"
        )
    linear = theirs.soft_cap is None and theirs.bias is None
    able = linear and same_visible(ours.visible, theirs.visible)
    fused = chosen_route(ours, entropy=True) == chosen_route(theirs, entropy=False) == "fused"
    if route == "tiled" or not (able and fused):
        return _tiled(ours, theirs, memory)
    return _fused(ours, theirs, memory)


def same_visible(a: Visible, b: Visible) -> bool:
    """Whether two calls are known to let the same queries see the same keys."""
    if a.rule != b.rule:
        return False
    pairs = ((getattr(a, name), getattr(b, name)) for name in _MASKS)
    return all(x is y or (x is not None and y is not None and torch.equal(x, y)) for x, y in pairs)


_MASKS = ("q_pos", "k_pos", "real_q", "real_k", "extra")


def _fused(ours: AttentionCall, theirs: AttentionCall, memory: int) -> Tensor:
    k = per_query_head(theirs.k, theirs.q.shape[1])
    found = moments(ours, [k], entropy=True, memory=memory)
    level = moments(theirs, memory=memory).log_sum_exp
    assert found.entropy is not None
    cross = level - theirs.scale * (theirs.q * found.mixed[0]).sum(-1)
    empty = found.log_sum_exp == float("-inf")
    return (cross - found.entropy).masked_fill(empty, 0.0).clamp(min=0.0)


def _tiled(ours: AttentionCall, theirs: AttentionCall, memory: int) -> Tensor:
    level = moments(theirs, memory=memory, route="tiled").log_sum_exp
    parts = [
        _tile(tile.call, cropped(theirs, tile.rows, tile.keys), level[:, :, tile.rows])
        for tile in tiles(ours, memory // 2)
    ]
    return torch.cat(parts, 2) if parts else ours.q.new_zeros(*ours.q.shape[:3])


def _tile(ours: AttentionCall, theirs: AttentionCall, level: Tensor) -> Tensor:
    scores = scores_of(ours)
    p, log_p = weights_of(scores, log_sum_exp_of(scores))
    log_other = scores_of(theirs) - level.masked_fill(level == float("-inf"), 0.0)[..., None]
    return torch.where(p > 0, p * (log_p - log_other), 0.0).sum(-1).clamp(min=0.0)
