"""Keys and values of the tokens so far, so that a sequence can be fed in chunks."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention.masks import Visible


@dataclass
class _Layer:
    """Buffers [B K capacity E] that grow by doubling."""

    k: Tensor | None = None
    v: Tensor | None = None

    def extended(self, length: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write behind `length` tokens, and return views of all there are."""
        end = length + k.shape[2]
        self.k, self.v = _with_room(self.k, length, end, k), _with_room(self.v, length, end, v)
        self.k[:, :, length:end], self.v[:, :, length:end] = k.detach(), v.detach()
        return self.k[:, :, :end], self.v[:, :, :end]

    def copied(self, length: int) -> "_Layer":
        copy = [None if x is None else x[:, :, :length].clone() for x in (self.k, self.v)]
        return _Layer(*copy)


def _with_room(buffer: Tensor | None, length: int, end: int, like: Tensor) -> Tensor:
    if buffer is not None and (buffer.shape[1], buffer.shape[3]) != (like.shape[1], like.shape[3]):
        held, got = [buffer.shape[i] for i in (1, 3)], [like.shape[i] for i in (1, 3)]
        raise ValueError(
            f"the KV cache holds {held} [heads, width] a token, this model writes {got}; "
            "use its own model.new_kv_cache()"
        )
    if buffer is not None and buffer.shape[2] >= end:
        return buffer
    grown = like.new_empty(*like.shape[:2], max(2 * length, end, 16), like.shape[3]).detach()
    if buffer is not None:
        grown[:, :, :length] = buffer[:, :, :length]
    return grown


@dataclass
class KVCache:
    """What `model(tokens, kv_cache=…)` reads and appends to.

    It holds no gradients: keys and values of earlier chunks are detached. A call that fails leaves
    it as it was, since tokens only count once `commit` is called at the call's end.

    Attributes:
        length: Slots held, pads included.
        real: True where a held slot is a real token, [B length].
        padded: Whether any held slot is a pad.
    """

    n_layers: int
    length: int = 0
    real: Bool[Tensor, "batch length"] | None = None
    padded: bool = False
    _layers: list[_Layer] = field(default_factory=list)
    _last: dict[int, Tensor] = field(default_factory=dict)
    _coming: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._layers = self._layers or [_Layer() for _ in range(self.n_layers)]

    def check_batch(self, batch: int) -> None:
        """Refuse to append to sequences of another batch.

        Raises:
            ValueError: The cache holds another batch size.
        """
        if self.real is not None and self.real.shape[0] != batch:
            raise ValueError(
                f"the KV cache holds {self.real.shape[0]} sequences, the tokens {batch}; "
                "use a new cache, or feed the same batch on"
            )

    def extend(
        self,
        layer: int,
        k: Float[Tensor, "batch kv_head pos d_head"],
        v: Float[Tensor, "batch kv_head pos d_head"],
    ) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values; return those of all tokens so far."""
        return self._layers[layer].extended(self.length, k, v)

    def visible_of(self, visible: Visible) -> Visible:
        """Who may see whom among the keys that `extend` gives: here, all there are."""
        return visible

    def past_of(self, layer: int) -> Tensor | None:
        """What a layer remembers of tokens whose keys `extend` does not give: here, nothing."""
        return None

    def last_key(self, layer: int) -> Tensor | None:
        """What `keep_last_key` was given in the last call that went well."""
        return self._last.get(layer)

    def keep_last_key(self, layer: int, key: Float[Tensor, "batch 1 kv_head d_head"]) -> None:
        """Remember a key as it was before it was smeared, for the next chunk's first token."""
        self._coming[layer] = key.detach()

    def commit(self, real: Bool[Tensor, "batch pos"]) -> None:
        """Count the tokens of a call that went well."""
        self.real = real if self.real is None else torch.cat([self.real, real], 1)
        self.padded = self.padded or not bool(real.all())
        self.length += real.shape[1]
        self._last, self._coming = {**self._last, **self._coming}, {}

    def fork(self) -> "KVCache":
        """A copy that goes its own way: feeding either does not touch the other."""
        layers = [layer.copied(self.length) for layer in self._layers]
        return KVCache(self.n_layers, self.length, self.real, self.padded, layers, self._last)
