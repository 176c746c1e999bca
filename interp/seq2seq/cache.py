"""What an encoder–decoder remembers between calls: its source, read once, and its own tokens."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import KVCache


@dataclass(frozen=True)
class Memory:
    """What the encoder made of a source.

    Attributes:
        source: The tokens that it read.
        mask: True where they are real; None: all are.
        stream: The encoder's last residual stream, normalised.
        position: The tokens' positions.
    """

    source: Int[Tensor, "batch source"]
    mask: Bool[Tensor, "batch source"] | None
    stream: Float[Tensor, "batch source d_model"]
    position: Int[Tensor, "b source"]

    def check_is_of(self, source: Tensor, mask: Tensor | None) -> None:
        """Refuse to go on with another source.

        Raises:
            ValueError: It is not the one that was read.
        """
        given, known = _spelled_out(mask, source), _spelled_out(self.mask, self.source)
        if not (torch.equal(source, self.source) and torch.equal(given, known)):
            raise ValueError(
                "the KV cache holds what the encoder made of another source; "
                "use a new model.new_kv_cache()"
            )


def _spelled_out(mask: Tensor | None, tokens: Tensor) -> Tensor:
    return torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask


@dataclass
class Seq2SeqCache:
    """What `model(source, tokens, kv_cache=…)` reads and appends to.

    The first call runs the encoder; later calls run neither it nor the projections of its stream to
    keys and values. It holds no gradients. A call that fails leaves it as it was.

    Attributes:
        own: Keys and values of the decoder's self-attention.
        memory: What the encoder made of the source; None before the first call.
    """

    own: KVCache
    memory: Memory | None = None
    _across: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _coming: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def across(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """A layer's keys and values of the source, [B source K E]; None before the first call."""
        return self._across.get(layer)

    def keep_across(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Remember them, if the call goes well."""
        self._coming[layer] = (k.detach(), v.detach())

    def commit(self, memory: Memory, real: Bool[Tensor, "batch pos"]) -> None:
        """Count the tokens of a call that went well."""
        self.memory = replace(memory, stream=memory.stream.detach())
        self._across, self._coming = {**self._across, **self._coming}, {}
        self.own.commit(real)

    def fork(self) -> "Seq2SeqCache":
        """A copy that goes its own way; the source's part, which nobody writes to, is shared."""
        return Seq2SeqCache(self.own.fork(), self.memory, dict(self._across))
