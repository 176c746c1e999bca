"""Blocks of random tokens, repeated: what induction heads are for, and are found by.

Source: Elhage et al. 2021 and Olsson et al. 2022 repeat one block of a fixed length. A fixed
length can be solved by looking a fixed distance back, without induction, so here it is drawn
anew for each sequence, and some lengths are withheld from training.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import Batch, Split, next_token_batch, numbered
from interp.tasks.splits import draw_split

SHORTEST = 3  # with two tokens, the one before and the one after an earlier occurrence coincide


@dataclass(frozen=True, kw_only=True)
class RepeatedTokens:
    """BOS, then a block of random distinct tokens, repeated to the end.

    vocab: number of ordinary tokens; BOS comes after them.
    length: positions of a sequence, BOS included.
    min_period, max_period: the block's length is drawn from this range, ends included
        (None: a quarter of max_period; half of `length` or `vocab`).
    withheld: periods that only the held-out split has, and no others (None: every fifth inside
        the range; empty: both splits have all periods, and sequences are split by a hash).
    prefix_share: the share of sequences that have other tokens between BOS and block: distinct,
        and none of the block's, so that they never come again.
    max_prefix: their number is drawn from 1 to this (None: a quarter of `length`, if that fits).
    scored: "repeats" asks for the next token wherever the token at hand occurred before; "all"
        asks everywhere, where the first block's tokens can only be guessed.

    Raises:
        ValueError: the ranges do not fit into `length` and `vocab`.
    """

    vocab: int = 64
    length: int = 64
    min_period: int | None = None
    max_period: int | None = None
    withheld: tuple[int, ...] | None = None
    prefix_share: float = 0.5
    max_prefix: int | None = None
    scored: Literal["repeats", "all"] = "repeats"

    def __post_init__(self) -> None:
        low, high = self.period_range
        if not SHORTEST <= low <= high:
            raise ValueError(
                f"repeated_tokens wants {SHORTEST} ≤ min_period ≤ max_period, got {low} and {high}"
            )
        if outside := sorted(set(self.withheld_periods) - set(range(low, high + 1))):
            raise ValueError(f"withheld periods {outside} are not between {low} and {high}")
        if not self.periods("train"):
            raise ValueError(f"every period from {low} to {high} is withheld: none is left")
        if not 0 <= self.prefix_share <= 1:
            raise ValueError(f"prefix_share is from 0 to 1, got {self.prefix_share}")
        if self.longest_prefix < 0 or self.longest_prefix + high > self.vocab:
            raise ValueError(
                f"a prefix of {self.longest_prefix} and a block of {high} distinct tokens don't "
                f"fit into a vocabulary of {self.vocab}: take less of max_prefix or max_period"
            )
        if self.longest_prefix + high + 3 > self.length:
            raise ValueError(
                f"BOS, a prefix of {self.longest_prefix}, a block of {high} and a first repeat "
                f"don't fit into {self.length} positions: take less of max_prefix or max_period"
            )

    @property
    def period_range(self) -> tuple[int, int]:
        """The shortest and the longest block."""
        half = min(self.length, self.vocab) // 2
        high = half if self.max_period is None else self.max_period
        return (max(SHORTEST, high // 4) if self.min_period is None else self.min_period), high

    @property
    def withheld_periods(self) -> tuple[int, ...]:
        """The periods that training never sees."""
        low, high = self.period_range
        return tuple(range(low + 4, high, 5)) if self.withheld is None else self.withheld

    @property
    def longest_prefix(self) -> int:
        """The longest prefix; 0 if no sequence has one."""
        if self.prefix_share == 0:
            return 0
        if self.max_prefix is not None:
            return self.max_prefix
        high = self.period_range[1]
        return max(0, min(self.length // 4, self.vocab - high, self.length - high - 3))

    def periods(self, split: Split) -> list[int]:
        """The periods that the split draws from."""
        low, high = self.period_range
        withheld = set(self.withheld_periods)
        kept = [p for p in range(low, high + 1) if p not in withheld]
        return sorted(withheld) if withheld and split == "held_out" else kept

    @property
    def d_vocab(self) -> int:
        """The ordinary tokens and BOS."""
        return self.vocab + 1

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> int:
        """The token after the ordinary ones."""
        return self.vocab

    @property
    def labels(self) -> tuple[str, ...]:
        """Numbers, and BOS."""
        return numbered(self.vocab, "BOS")


def repeated_tokens_batch(
    config: RepeatedTokens, n: int, generator: torch.Generator, *, split: Split
) -> Batch:
    """`n` sequences of the split, each with a period and perhaps a prefix of its own.

    A model that copies what followed last time is right at every target of "repeats"; one that
    does not is at best at ln V.
    """

    def draw(count: int) -> Int[Tensor, "count 2+T"]:
        return _draw(config, count, generator, split=split)

    by_period = bool(config.withheld_periods)
    rows = draw(n) if by_period else draw_split(draw, n, split=split)
    starts, tokens = rows[:, :1] + rows[:, 1:2], rows[:, 2:].contiguous()
    if config.scored == "all":
        return next_token_batch(tokens)
    return next_token_batch(tokens, scored=torch.arange(config.length) > starts)


def _draw(
    config: RepeatedTokens, n: int, generator: torch.Generator, *, split: Split
) -> Int[Tensor, "n 2+T"]:
    """Prefix length, period and tokens of `n` sequences."""
    periods = torch.tensor(config.periods(split))
    period = periods[torch.randint(len(periods), (n, 1), generator=generator)]
    prefix = torch.zeros_like(period)
    if config.longest_prefix > 0:
        has_one = torch.rand(n, 1, generator=generator) < config.prefix_share
        lengths = torch.randint(1, config.longest_prefix + 1, (n, 1), generator=generator)
        prefix = lengths * has_one
    # One shuffled vocabulary a sequence: its first tokens are the prefix, the next ones the block.
    shuffled = torch.rand(n, config.vocab, generator=generator).argsort(-1)
    place = torch.arange(config.length - 1).expand(n, -1)
    place = torch.where(place < prefix, place, prefix + (place - prefix) % period)
    bos = torch.full((n, 1), config.bos_token)
    return torch.cat([prefix, period, bos, shuffled.gather(1, place)], 1)
