"""Exact statistics of an attention pattern that is never held."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention.asked import (
    as_bools,
    as_values,
    check_memory,
    check_order,
    check_scores,
    check_top,
)
from interp.attention.call import AttentionCall, without_junk
from interp.attention.functional import call_of
from interp.attention.kernels import pattern_of, scores_of
from interp.attention.moments import Moments, Route, moments, powered
from interp.attention.pairs import key_at_position, weights_at
from interp.attention.tiles import (
    MEMORY,
    Tile,
    chosen_of,
    cropped,
    of_heads,
    tiles,
    weights_of,
    widened,
)
from interp.attention.versus import divergence


class TopKeys(NamedTuple):
    """The keys that queries attend to most, in order; −1 and 0 where there are fewer."""

    indices: Int[Tensor, "batch head q top"]
    weights: Float[Tensor, "batch head q top"]


class AttentionView:
    """What is true of softmax(scale·q·kᵀ), row by row, in O(n) memory.

    Everything is computed in float32 or better. `log_sum_exp`, `entropy`, `renyi_entropy`,
    `mean_of`, `weight_at`, what is made of them, and `pattern` are differentiable (once) with
    respect to q and k; `max_weight`, `top_keys` and `divergence_to` are detached; a bias is a
    constant for all of them. A sink logit is left out of all of them: a row is the one over its
    keys, made to sum to 1, and not the smaller weights that flow beside a sink. A row that sees no
    key has the log-sum-exp −inf, entropy 0, and weights and means 0.
    """

    def __init__(
        self,
        q: Float[Tensor, "batch head q d_head"],
        k: Float[Tensor, "batch kv_head k d_head"],
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = True,
        scale: float | None = None,
        *,
        bias: Callable[[Tensor, Tensor], Tensor] | None = None,
        soft_cap: float | None = None,
        memory: int = MEMORY,
        route: Route = "auto",
    ) -> None:
        """View the attention of q to k.

        Args:
            q: Queries, rotated where the model rotates them.
            k: Keys; their heads may divide the queries' (grouped-query attention).
            mask: True where a query may see a key; broadcasts to [B H Tq Tk]. A padding mask
                [B Tk] is given as `real[:, None, None, :]`.
            causal: Aligned at the bottom right: the last query sees all keys.
            scale: What q·k is multiplied with; 1/√d_head by default.
            bias: A function of positions ([B Tq], [B Tk]) added to the scores: [B|1, H|1, Tq, Tk].
            soft_cap: Scores become cap·tanh(score / cap) before bias and mask.
            memory: Bytes that may be held at a time, beside what comes out.
            route: "fused" insists on a kernel, "tiled" on plain operations over tiles.

        Raises:
            TypeError: The mask is not of bools, or the bias no function.
            ValueError: Shapes do not fit, the soft cap is not above 0, or no kernel can serve a
                call that must be fused.
        """
        check_scores(bias, soft_cap)
        call = call_of(q, k, k, mask=mask, causal=causal, scale=scale)
        self._set(replace(call, bias=bias, soft_cap=soft_cap), memory, route)

    @classmethod
    def of(
        cls, call: AttentionCall, *, memory: int = MEMORY, route: Route = "auto"
    ) -> "AttentionView":
        """View one layer's attention as a model runs it."""
        view = cls.__new__(cls)
        view._set(call, memory, route)
        return view

    def _set(self, call: AttentionCall, memory: int, route: Route) -> None:
        check_memory(memory)
        if route not in get_args(Route):
            raise ValueError(f"route must be one of {', '.join(get_args(Route))}; got {route!r}")
        self.call = widened(without_junk(replace(call, sink=None)))
        self.memory = memory
        self.route: Route = route
        self._kept: Tensor | None = None

    def keep(self, log_sum_exp: Float[Tensor, "batch head q"]) -> None:
        """Take over a log-sum-exp that is known already, for the weights that are asked for."""
        self._kept = log_sum_exp

    def visible_keys(self) -> Int[Tensor, "batch head q"]:
        """How many keys each query may see."""
        return self.call.visible.count().expand(*self.call.q.shape[:3])

    def moments(self, *values: Tensor, entropy: bool = False) -> Moments:
        """Log-sum-exp, means of several values [B|1, H|K|1, Tk, F] and entropy, in one run."""
        return moments(self.call, values, entropy=entropy, memory=self.memory, route=self.route)

    def log_sum_exp(self) -> Float[Tensor, "batch head q"]:
        """Natural log of the sum of exponentiated scores; −inf for a row that sees nothing."""
        if self._kept is not None:
            return self._kept
        found = self.moments().log_sum_exp
        if not found.requires_grad:
            self._kept = found
        return found

    def entropy(self, normalized: bool = False) -> Float[Tensor, "batch head q"]:
        """Entropy in nats; or divided by the log of the number of keys that a row may see.

        Normalised, a uniform row scores 1 and a one-hot row 0, and a row that may see at most one
        key has none: NaN.
        """
        found = self.moments(entropy=True).entropy
        assert found is not None
        if not normalized:
            return found
        seen = self.visible_keys()
        alone = seen <= 1
        most = seen.masked_fill(alone, 2).to(found.dtype).log()
        return (found / most).masked_fill(alone, float("nan"))

    def effective_keys(self) -> Float[Tensor, "batch head q"]:
        """exp(entropy): among how many keys a row would be uniform; 0 for one that sees none."""
        return self.entropy().exp().masked_fill(self.visible_keys() == 0, 0.0)

    def renyi_entropy(self, order: float) -> Float[Tensor, "batch head q"]:
        """Rényi entropy log Σ pᵃ / (1 − a) in nats: L(a·s) − a·L(s) over 1 − a.

        Order 1 is Shannon's, ∞ is −log of the largest weight, 0 the log of the keys seen.

        Raises:
            ValueError: The order is negative.
        """
        check_order(order)
        if order == 1:
            return self.entropy()
        most = self.visible_keys().clamp(min=1).to(self.call.q.dtype).log()
        if order == 0:
            return most
        if order == float("inf"):
            found = -self.max_weight().log().masked_fill(self.visible_keys() == 0, 0.0)
        else:
            found = self._log_power_sum(order) / (1 - order)
        return found.clamp(min=0.0).minimum(most)

    def _log_power_sum(self, order: float) -> Tensor:
        """The log of Σ pᵃ; 0 for a row that sees nothing."""
        raised = moments(powered(self.call, order), memory=self.memory, route=self.route)
        empty = self.visible_keys() == 0
        high, low = (x.masked_fill(empty, 0.0) for x in (raised.log_sum_exp, self.log_sum_exp()))
        return high - order * low

    def mean_of(self, features: Float[Tensor, "*#batch k feature"]) -> Tensor:
        """The mean of some features of the keys under each row's pattern.

        Args:
            features: [Tk F], [B Tk F] or [B H Tk F].

        Returns:
            [B H Tq F].
        """
        return self.moments(as_values(features, self.call)).mixed[0]

    def share_of(
        self, keys: Bool[Tensor, "*#batch k"] | Sequence[int]
    ) -> Float[Tensor, "batch head q"]:
        """The share of attention on a set of keys: bools [Tk] or [B Tk], or a list of indices."""
        keys = as_bools(keys, self.call.visible.n_k)
        return self.mean_of(keys.to(self.call.q)[..., None])[..., 0].clamp(0.0, 1.0)

    def first_key_share(self) -> Float[Tensor, "batch head q"]:
        """The weight on the first real key, a sink in many models; NaN where it can't be seen."""
        visible = self.call.visible
        first = key_at_position(visible, torch.zeros_like(visible.q_pos))
        return self.weight_at(first, unseen=float("nan"))

    def mean_distance(self) -> Float[Tensor, "batch head q"]:
        """How many tokens back a row looks on average; NaN for one that sees nothing."""
        visible = self.call.visible
        pos = visible.k_pos.to(self.call.q)[:, None, :, None]
        at = self.moments(pos).mixed[0][..., 0]
        away = visible.q_pos.to(at)[:, None] - at
        return away.masked_fill(visible.count() == 0, float("nan"))

    def weight_at(
        self, key_index: Int[Tensor, "*#batch q"], *, unseen: float = 0.0
    ) -> Float[Tensor, "batch head q"]:
        """The weight of one key for each query, exp(s − L).

        Args:
            key_index: Slots of keys, [Tq], [B Tq] or [B H Tq]; −1 for none, which gives NaN.
            unseen: What comes out where the query may not see that key.

        Raises:
            ValueError: An index is outside of the keys.
        """
        return weights_at(self.call, key_index, self.log_sum_exp(), unseen=unseen)

    @torch.no_grad()
    def max_weight(self) -> Float[Tensor, "batch head q"]:
        """The largest weight of each row; detached."""
        return self.top_keys(1).weights[..., 0]

    @torch.no_grad()
    def top_keys(self, k: int) -> TopKeys:
        """The k keys that each query attends to most, and how much; detached."""
        check_top(k)
        known, parts = self.log_sum_exp(), []
        for tile in tiles(self.call, self.memory):
            p, _ = weights_of(scores_of(tile.call), known[:, :, tile.rows])
            parts.append(_top(p, k, tile))
        if not parts:
            empty = known[..., None].expand(-1, -1, -1, k)
            return TopKeys(empty.long(), empty)
        weights, indices = (torch.cat(x, 2) for x in zip(*parts, strict=True))
        return TopKeys(indices, weights)

    def pattern(
        self,
        rows: Sequence[int] | slice | Tensor | None = None,
        heads: Sequence[int] | Tensor | None = None,
    ) -> Float[Tensor, "batch head q k"]:
        """The pattern itself for some queries and heads (None: all of them).

        Raises:
            ValueError: There is no such query or head.
        """
        call = self.call
        if heads is not None:
            call = of_heads(call, chosen_of("heads", heads, call.q, axis=1))
        if rows is None:
            return pattern_of(call)
        chosen = rows if isinstance(rows, slice) else chosen_of("rows", rows, call.q, axis=2)
        return pattern_of(cropped(call, chosen))

    @torch.no_grad()
    def divergence_to(self, other: "AttentionView") -> Float[Tensor, "batch head q"]:
        """KL(this ‖ other) of each row, in nats; detached.

        0 for equal patterns; ∞ where this one attends to a key that the other may not see.

        Raises:
            TypeError: The other is no view.
            ValueError: The two are not over the same queries and keys.
        """
        if not isinstance(other, AttentionView):
            raise TypeError(f"wanted another AttentionView, got {type(other).__name__}")
        return divergence(self.call, other.call, memory=self.memory, route=self.route)


def _top(p: Float[Tensor, "batch head q k"], k: int, tile: Tile) -> tuple[Tensor, Tensor]:
    found = p.topk(min(k, p.shape[-1]), -1)
    indices = (found.indices + tile.keys.start).masked_fill(found.values == 0, -1)
    short = k - indices.shape[-1]
    pad = torch.nn.functional.pad
    return pad(found.values, (0, short)), pad(indices, (0, short), value=-1)
