"""Which keys a query may see: rules over positions, and the view of one call."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.attention.bigbird import BigBird
from interp.attention.linear import Linear
from interp.attention.longformer import Longformer
from interp.attention.performer import Performer
from interp.attention.streaming import Streaming
from interp.attention.window import Window


class Rule(Protocol):
    """A mask as a function of positions. Two equal rules are the same mask."""

    def __call__(
        self, q_pos: Int[Tensor, "*#batch q 1"], k_pos: Int[Tensor, "*#batch 1 k"]
    ) -> Bool[Tensor, "*batch q k"]:
        """True where the query may see the key."""
        ...

    def count(
        self, q_pos: Int[Tensor, "batch q"], n_keys: Int[Tensor, "batch 1"]
    ) -> Int[Tensor, "batch q"]:
        """How many of the keys 0 … n_keys − 1 a query may see."""
        ...


@dataclass(frozen=True)
class Causal:
    """Every token sees itself and all before it."""

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True at and before the query."""
        return k_pos <= q_pos

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """As many as there are up to the query's own."""
        return torch.minimum(q_pos + 1, n_keys).clamp(min=0)


@dataclass(frozen=True)
class Full:
    """Every token sees every token."""

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True everywhere."""
        return torch.ones_like(k_pos <= q_pos)

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """All of them."""
        return n_keys.expand(*torch.broadcast_shapes(q_pos.shape, n_keys.shape))


@dataclass(frozen=True)
class Visible:
    """Who may see whom in one attention call.

    A position is a token's index among the real ones, so that padding on either side changes
    nothing. Pads are neither rows nor keys: a pad's row sees nothing.

    Attributes:
        rule: The mask as a function of positions.
        q_pos: Positions of the queries, [B Tq] or [1 Tq]; below 0 sees nothing when causal.
        k_pos: Positions of the keys, [B Tk] or [1 Tk].
        real_q: True where the query is a real token, [B Tq]; None: all are.
        real_k: True where the key is a real token, [B Tk]; None: all are.
        extra: A further mask that broadcasts to [B H Tq Tk], or None.
        in_order: Slot and position agree for all real tokens (no pads before or between them).
    """

    rule: Rule
    q_pos: Int[Tensor, "b q"]
    k_pos: Int[Tensor, "b k"]
    real_q: Bool[Tensor, "batch q"] | None = None
    real_k: Bool[Tensor, "batch k"] | None = None
    extra: Bool[Tensor, "b h q k"] | None = None
    in_order: bool = True

    @property
    def n_q(self) -> int:
        """Number of query slots."""
        return self.q_pos.shape[-1]

    @property
    def n_k(self) -> int:
        """Number of key slots."""
        return self.k_pos.shape[-1]

    def grid(self, rows: slice | Tensor = slice(None)) -> Bool[Tensor, "b h rows k"]:
        """The mask of some query slots, True = may see; axes of size 1 broadcast.

        `rows` is a slice, or an index tensor [R] or, one set for each example, [B R].
        """
        q_pos, real_q, extra = self.q_pos, self.real_q, self.extra
        if isinstance(rows, Tensor) and rows.dim() == 2:
            q_pos = q_pos.expand(rows.shape[0], -1).gather(1, rows)
            real_q = None if real_q is None else real_q.gather(1, rows)
            if extra is not None:
                extra = _rows_of(extra, rows)
        else:
            q_pos = q_pos[:, rows]
            real_q = None if real_q is None else real_q[:, rows]
            extra = extra if extra is None or extra.shape[-2] == 1 else extra[..., rows, :]
        seen = self.rule(q_pos[:, :, None], self.k_pos[:, None, :])[:, None]
        if real_q is not None:
            seen = seen & real_q[:, None, :, None]
        if self.real_k is not None:
            seen = seen & self.real_k[:, None, None, :]
        return seen if extra is None else seen & extra

    def count(self, tile: int = 1 << 22) -> Int[Tensor, "b h q"]:
        """How many keys each query may see; axes of size 1 broadcast. No n×n mask is held."""
        if self.extra is not None:
            step = max(1, tile // (self.n_k * self.extra.shape[0] * self.extra.shape[1]))
            starts = range(0, self.n_q, step)
            return torch.cat([self.grid(slice(s, s + step)).sum(-1) for s in starts], -1)
        real = self.real_k
        keys = self.k_pos.new_full((1, 1), self.n_k) if real is None else real.sum(-1, keepdim=True)
        counted = self.rule.count(self.q_pos, keys)
        return (counted if self.real_q is None else counted * self.real_q)[:, None]

    def compacted(self) -> "Compacted":
        """The same call with real tokens moved to the front; sorted once for all layers.

        Only where queries and keys are the same slots.
        """
        if torch.compiler.is_compiling():  # a graph can keep nothing in it
            return self._moved_to_front()
        return self._compacted

    @cached_property
    def _compacted(self) -> "Compacted":
        return self._moved_to_front()

    def _moved_to_front(self) -> "Compacted":
        if self.real_k is None or self.n_q != self.n_k:
            raise ValueError("only a padded call whose queries are its keys can be compacted")
        order = self.real_k.int().argsort(dim=-1, descending=True, stable=True)
        real = self.real_k.gather(1, order)
        position = torch.arange(self.n_k, device=order.device)[None]
        moved = replace(
            self, q_pos=position, k_pos=position, real_q=real, real_k=real, in_order=True
        )
        return Compacted(moved, order, order.argsort(-1))


class Compacted(NamedTuple):
    """A padded call with its real tokens first.

    Attributes:
        visible: Who may see whom there.
        order: The slot that each place is taken from.
        back: The place that each slot went to.
    """

    visible: Visible
    order: Int[Tensor, "batch n"]
    back: Int[Tensor, "batch n"]


def _rows_of(extra: Tensor, rows: Tensor) -> Tensor:
    if extra.shape[-2] == 1:
        return extra
    extra = extra.expand(rows.shape[0], -1, -1, -1)
    index = rows[:, None, :, None].expand(-1, extra.shape[1], -1, extra.shape[-1])
    return extra.gather(2, index)


def positions_of(mask: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Each token's index among the real ones; a pad has that of the last real token before it."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


MASKS: dict[str, type] = {
    "causal": Causal,
    "full": Full,
    "window": Window,
    "streaming": Streaming,
    "longformer": Longformer,
    "bigbird": BigBird,
    "linear": Linear,
    "performer": Performer,
}
"""The rules by the name that `TransformerConfig.attention` takes; fields are their options."""

WHEN: dict[str, str] = {
    "causal": "by default",
    "full": "encoders: every token sees every token",
    "window": "long sequences whose layers together reach far enough; costs n·w",
    "streaming": "generation without end, by models that park attention on the first tokens; "
    'positions="cache" (rotary, ALiBi) keeps these as near as in training',
    "longformer": "a few positions that all must read, or that read all",
    "bigbird": "long sequences with far links that nobody knows beforehand",
    "linear": "a state of fixed size per head in place of keys; sharp look-ups suffer",
    "performer": "the same, near to softmax while scores are small",
}
"""When to choose each kind."""


def options_of(kind: str) -> tuple[str, ...]:
    """The options that a kind takes, in order.

    Raises:
        KeyError: There is no such kind.
    """
    return tuple(option.name for option in fields(MASKS[kind]))
