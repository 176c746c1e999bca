"""A KV cache that forgets what no later token may see.

Window layers keep their last tokens, streaming layers also the sinks, and attention by features
keeps one matrix a head, Σ φ(k) [v, 1]ᵀ. Generation then takes the same memory at any length.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention.features import Featured, State, with_ones
from interp.attention.kv_cache import KVCache
from interp.attention.masks import Rule, Visible
from interp.attention.streaming import Streaming
from interp.attention.window import Window


@dataclass
class _Kept:
    """What one layer remembers, and what it will once the call has gone well."""

    k: Tensor | None = None
    v: Tensor | None = None
    state: State | None = None

    def joined(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.k is None or self.v is None:
            return k, v
        return torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)


@dataclass
class RollingCache(KVCache):
    """A KV cache of bounded size, for windows, streams and attention by features.

    Layers under another rule keep everything. This is the model's own mask with nothing
    recomputed: positions are those of the whole sequence, or, for streams that say so, those within
    what is kept. Takes no padding.

    Attributes:
        rules: Each layer's.
        scales: What each layer multiplies q·k with.
    """

    rules: Sequence[Rule] = ()
    scales: Sequence[float] = ()
    _kept: list[_Kept] = field(default_factory=list)
    _next: dict[int, _Kept] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.rules) == len(self.scales) == self.n_layers:
            raise ValueError(
                f"wanted a rule and a scale for each of {self.n_layers} layers, got "
                f"{len(self.rules)} and {len(self.scales)}; model.new_kv_cache('rolling') has them"
            )
        self._kept = self._kept or [_Kept() for _ in range(self.n_layers)]

    def visible_of(self, visible: Visible) -> Visible:
        """The view of a call on the keys that `extend` gives.

        Raises:
            ValueError: The call is padded.
        """
        if visible.real_k is not None or visible.real_q is not None:
            raise ValueError(
                "a rolling KV cache takes no padding: feed sequences of one length, or use "
                "new_kv_cache() without a kind"
            )
        slots = self._slots(visible.rule, visible.n_q)
        if len(slots) == visible.n_k:
            return visible
        return replace(visible, k_pos=visible.k_pos[:, slots], in_order=False)

    def extend(
        self,
        layer: int,
        k: Float[Tensor, "batch kv_head pos d_head"],
        v: Float[Tensor, "batch kv_head pos d_head"],
    ) -> tuple[Tensor, Tensor]:
        """One layer's keys and values that its rule may still show, the new ones behind them."""
        rule, kept = self.rules[layer], self._kept[layer]
        if isinstance(rule, Featured) and rule.causal:
            state = self._state_after(layer, k.detach(), v.detach())
            self._next[layer] = _Kept(state=state)
            return k, v
        k, v = kept.joined(k, v)
        slots = self._slots(rule, k.shape[2] - (0 if kept.k is None else kept.k.shape[2]))
        later = torch.isin(slots, self._remembered(rule, int(slots[-1]) + 1))
        self._next[layer] = _Kept(k[:, :, later].detach(), v[:, :, later].detach())
        return k, v

    def past_of(self, layer: int) -> State | None:
        """What attention by features remembers of the tokens before this call."""
        return self._kept[layer].state

    def commit(self, real: Bool[Tensor, "batch pos"]) -> None:
        """Count the tokens of a call that went well, and forget what rolled out of sight."""
        for layer, kept in self._next.items():
            self._kept[layer] = kept
        self._next = {}
        super().commit(real)

    def fork(self) -> "RollingCache":
        """A copy that goes its own way; nothing is copied, since nothing is written in place."""
        return replace(self, _kept=list(self._kept), _next={}, _coming={})

    def _remembered(self, rule: Rule, length: int) -> Int[Tensor, " slot"]:
        """The slots that are kept of so many tokens."""
        if isinstance(rule, Featured) and rule.causal:
            return torch.arange(0)
        if not isinstance(rule, Window | Streaming):
            return torch.arange(length)
        sinks = rule.sinks if isinstance(rule, Streaming) else 0
        first = max(length - rule.window + 1, 0)
        return torch.cat([torch.arange(min(sinks, first)), torch.arange(first, length)])

    def _slots(self, rule: Rule, n_new: int) -> Int[Tensor, " slot"]:
        """The slots whose keys a call of so many new tokens is given."""
        new = torch.arange(self.length, self.length + n_new)
        return torch.cat([self._remembered(rule, self.length), new])

    def _state_after(self, layer: int, k: Tensor, v: Tensor) -> State:
        rule, past = self.rules[layer], self._kept[layer].state
        assert isinstance(rule, Featured)
        wide = torch.promote_types(k.dtype, torch.float32)
        added = rule.of_keys(k.to(wide), self.scales[layer]).mT @ with_ones(v.to(wide))
        return added if past is None else past + added
