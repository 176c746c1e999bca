"""Log-sum-exp, entropy and means under an attention pattern, without the pattern, with gradients.

With scores s, p = softmax(s) and L = logsumexp(s): the entropy is L − E_p[s], a mean is p V. A
fused kernel gives them where it can; elsewhere, and in the backward pass, tiles of scores are made
again and left again. Their derivatives with respect to one row's scores are

    dL = p_j,   dH = −p_j (log p_j + H),   d(p V) = p_j (V_j − p V).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from interp.attention import lse
from interp.attention.call import AttentionCall, per_query_head
from interp.attention.features import Featured
from interp.attention.gradients import Known, Towards, pull_back
from interp.attention.kernels import scores_of
from interp.attention.tiles import MEMORY, cropped, log_sum_exp_of, tiles, weights_of, widened

Route = Literal["auto", "fused", "tiled"]


@dataclass(frozen=True)
class Moments:
    """What is known of each row of a pattern.

    Attributes:
        log_sum_exp: Natural, [B H Tq]; −inf where a row sees nothing.
        entropy: Nats, [B H Tq], in [0, log of the keys seen]; 0 where a row sees nothing. None:
            not asked for.
        mixed: p V for each of the values, [B H Tq F]; 0 where a row sees nothing.
    """

    log_sum_exp: Float[Tensor, "batch head q"]
    entropy: Float[Tensor, "batch head q"] | None
    mixed: tuple[Float[Tensor, "batch head q feature"], ...]


def moments(
    call: AttentionCall,
    values: Sequence[Tensor] = (),
    *,
    entropy: bool = False,
    memory: int = MEMORY,
    route: Route = "auto",
) -> Moments:
    """Log-sum-exp, entropy and means of values, in float32 or better.

    Differentiable once with respect to q, k and the values; not with respect to a bias.

    Args:
        call: Without junk in slots that nobody sees.
        values: What to average under the pattern, each [B|1, H|K|1, Tk, F].
        entropy: Whether to compute the entropy too.
        memory: Bytes that may be held at a time, beside what comes out.
        route: "tiled" walks tiles of scores with plain operations; "fused" insists on a kernel.

    Raises:
        ValueError: A fused kernel was asked for, and none can serve this call.
    """
    call = widened(call)
    values = [v.to(call.q.dtype) for v in values]
    fused = chosen_route(call, entropy=entropy, route=route) == "fused"
    how = _How(call, entropy, memory, fused)
    if isinstance(call.visible.rule, Featured):
        return _tiled(call, values, how)  # the backward pass below is a softmax's
    found = _Moments.apply(how, call.q, call.k, *values)
    return Moments(found[0], found[1] if entropy else None, tuple(found[2:]))


def chosen_route(
    call: AttentionCall, *, entropy: bool, route: Route = "auto"
) -> Literal["fused", "tiled"]:
    """The route that serves a call: a kernel where one can, otherwise tiles."""
    able = lse.serves(call) and not (entropy and call.bias is not None)
    if route == "fused" and not able:
        raise ValueError(
            "no fused kernel serves this call (soft cap, bias, device, or no keys); "
            'use route="auto" or "tiled"'
        )
    return "tiled" if route == "tiled" or not able else "fused"


@dataclass(frozen=True)
class _How:
    call: AttentionCall
    entropy: bool
    memory: int
    fused: bool


class _Moments(torch.autograd.Function):
    """(log-sum-exp, entropy or an empty tensor, mixed values…)."""

    @staticmethod
    def forward(ctx: Any, how: _How, q: Tensor, k: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        call = replace(how.call, q=q, k=k)
        found = _fused(call, values, how) if how.fused else _tiled(call, values, how)
        if found.entropy is None:
            entropy = q.new_empty(0)
            ctx.mark_non_differentiable(entropy)
        else:
            entropy = _clamped(_sharpened(found.entropy, found.log_sum_exp, call, how), call)
        ctx.how = how
        ctx.save_for_backward(q, k, found.log_sum_exp, entropy, *values, *found.mixed)
        return found.log_sum_exp, entropy, *found.mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        g_lse, g_entropy, *g_mixed = gradients
        q, k, log_sum_exp, entropy, *rest = ctx.saved_tensors
        n, how = len(rest) // 2, ctx.how
        towards = Towards(g_lse, g_entropy if how.entropy else None, g_mixed)
        known = Known(log_sum_exp, entropy, rest[:n], rest[n:])
        return None, *pull_back(replace(how.call, q=q, k=k), known, towards, how.memory)


def _fused(call: AttentionCall, values: Sequence[Tensor], how: _How) -> Moments:
    found = lse.run(call, values, energy=how.entropy, memory=how.memory)
    log_sum_exp = found.log_sum_exp
    if found.energy is None:
        return Moments(log_sum_exp, None, tuple(found.mixed))
    entropy = (log_sum_exp - found.energy).masked_fill(log_sum_exp == float("-inf"), 0.0)
    return Moments(log_sum_exp, entropy, tuple(found.mixed))


def _sharpened(entropy: Tensor, log_sum_exp: Tensor, call: AttentionCall, how: _How) -> Tensor:
    """Rows whose scores are too large for their precision, again in tiles of float64."""
    large = 2.0**-14 / torch.finfo(entropy.dtype).eps
    rows = ((log_sum_exp.abs() > large) & log_sum_exp.isfinite()).flatten(0, 1).any(0)
    if not bool(rows.any()):
        return entropy
    some = cropped(call, rows.nonzero()[:, 0])
    some = replace(some, q=some.q.double(), k=some.k.double())
    again = _tiled(some, (), how).entropy
    assert again is not None
    entropy[:, :, rows] = again.to(entropy.dtype)
    return entropy


def _clamped(entropy: Tensor, call: AttentionCall) -> Tensor:
    most = call.visible.count().clamp(min=1).to(entropy.dtype).log()
    return entropy.clamp(min=0.0).minimum(most)


def _tiled(call: AttentionCall, values: Sequence[Tensor], how: _How) -> Moments:
    heads = call.q.shape[1]
    values = [v if v.shape[1] == 1 else per_query_head(v, heads) for v in values]
    parts = [_tile(t.call, [v[:, :, t.keys] for v in values]) for t in tiles(call, how.memory)]
    if not parts:
        empty = call.q.new_zeros(*call.q.shape[:3])
        mixed = [empty[..., None].expand(-1, -1, -1, v.shape[-1]) for v in values]
        return Moments(empty, empty.clone() if how.entropy else None, tuple(mixed))
    log_sum_exp, entropy, *mixed = (torch.cat(x, 2) for x in zip(*parts, strict=True))
    return Moments(log_sum_exp, entropy if how.entropy else None, tuple(mixed))


def _tile(call: AttentionCall, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    scores = scores_of(call)
    log_sum_exp = log_sum_exp_of(scores)
    p, log_p = weights_of(scores, log_sum_exp)
    entropy = -(p * log_p).sum(-1)
    return log_sum_exp, entropy, *(p @ v.to(p.dtype) for v in values)


def powered(call: AttentionCall, order: float) -> AttentionCall:
    """The call with all its scores multiplied by `order`.

    Raises:
        ValueError: Its weights are not a softmax.
    """
    if isinstance(call.visible.rule, Featured):
        raise ValueError(
            f"{type(call.visible.rule).__name__} attention has Rényi entropies of order 0, 1 and ∞ "
            "only; for another order use view.pattern()"
        )
    bias = call.bias
    return replace(
        call,
        scale=call.scale * order,
        soft_cap=None if call.soft_cap is None else call.soft_cap * order,
        bias=None if bias is None else lambda q_pos, k_pos: bias(q_pos, k_pos) * order,
    )
