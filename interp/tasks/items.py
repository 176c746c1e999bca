"""The layout that copy, sort and reverse share: BOS, items, a separator, what is made of them."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import Batch, Split, next_token_batch, numbered
from interp.tasks.splits import draw_split


@dataclass(frozen=True, kw_only=True)
class Items:
    """Options of a task that turns items into as many others.

    vocab: number of different items; BOS and the separator come after them.
    length: positions of a sequence, `2 · items + 2`.

    Raises:
        ValueError: an odd or too short length, or fewer than two different items.
    """

    vocab: int = 64
    length: int = 32

    def __post_init__(self) -> None:
        if self.length < 4 or self.length % 2:
            raise ValueError(
                f"length counts BOS, separator and the items twice: an even number from 4, "
                f"got {self.length}"
            )
        if self.vocab < 2:
            raise ValueError(f"vocab is the number of different items, 2 or more, got {self.vocab}")

    @property
    def items(self) -> int:
        """How many items a sequence has."""
        return (self.length - 2) // 2

    @property
    def d_vocab(self) -> int:
        """The items, BOS and the separator."""
        return self.vocab + 2

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> int:
        """The token after the items."""
        return self.vocab

    @property
    def separator(self) -> int:
        """The token after BOS."""
        return self.vocab + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Numbers, BOS and SEP."""
        return numbered(self.vocab, "BOS", "SEP")


def draw_items(
    config: Items, n: int, generator: torch.Generator, *, split: Split
) -> Int[Tensor, "n items"]:
    """`n` sequences of independent items, all of the split."""

    def draw(count: int) -> Int[Tensor, "count items"]:
        return torch.randint(config.vocab, (count, config.items), generator=generator)

    return draw_split(draw, n, split=split)


def answered(config: Items, items: Int[Tensor, "n k"], answers: Int[Tensor, "n k"]) -> Batch:
    """BOS, items, separator, answers; scored from the separator on, where answers are next."""
    bos, separator = (torch.full((len(items), 1), t) for t in (config.bos_token, config.separator))
    tokens = torch.cat([bos, items, separator, answers], 1)
    asked = torch.arange(config.length) > config.items
    return next_token_batch(tokens, scored=asked.expand_as(tokens))
