"""Sequences that probes draw themselves: a block of random distinct tokens, repeated."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

SHORTEST = 3
"""With a period of 2, the token before is the one after an earlier occurrence."""

LONGEST = 32
"""Periods that are tried by default stay under this, however long the context."""


@dataclass(frozen=True)
class Room:
    """What a model can be shown.

    Attributes:
        n_ctx: Longest sequence, BOS included.
        n_tokens: Size of the vocabulary, BOS included.
        bos_token: What starts each sequence; None: nothing does.
    """

    n_ctx: int
    n_tokens: int
    bos_token: int | None

    @property
    def start(self) -> int:
        """Where a block starts: behind BOS."""
        return 0 if self.bos_token is None else 1

    @property
    def longest(self) -> int:
        """The longest period of which two blocks fit."""
        return min((self.n_ctx - self.start) // 2, self.n_tokens - self.start)

    def check_controls(self) -> None:
        """Refuse a model that can't be shown two periods, one to be the other's control.

        Raises:
            ValueError: Its vocabulary or its context is too small.
        """
        tokens, n_ctx = self.start + SHORTEST + 1, self.start + SHORTEST + 2
        if self.n_tokens < tokens or self.n_ctx < n_ctx:
            raise ValueError(
                f"an induction head is told from a head that looks a fixed distance back on blocks "
                f"of {SHORTEST} and of {SHORTEST + 1} distinct tokens: that takes {tokens} tokens "
                f"and {n_ctx} positions{' with BOS' if self.start else ''}; this model has "
                f"{self.n_tokens} and {self.n_ctx}. induction_scores(model) has no such control"
            )

    def checked(self, periods: Sequence[int]) -> tuple[int, ...]:
        """The periods, if a model can be shown each of them.

        Raises:
            TypeError: They are no list of whole numbers.
            ValueError: One is too short to tell induction from looking one token back, or does
                not fit.
        """
        if not isinstance(periods, Sequence):
            raise TypeError(f"periods are a list of whole numbers, got {periods!r}")
        if not periods:
            raise ValueError("wanted one period or more, got none")
        if not all(isinstance(period, int) for period in periods):
            raise TypeError(f"periods are a list of whole numbers, got {periods!r}")
        for period in periods:
            if period < SHORTEST:
                raise ValueError(
                    f"a period of {period} is too short: a previous-token head would pass for an "
                    f"induction head; take {SHORTEST} or more"
                )
            if period > self.n_tokens - self.start or self.start + period + 1 > self.n_ctx:
                raise ValueError(
                    f"a block of {period} distinct tokens and the start of its repeat do not fit "
                    f"into {self.n_ctx} positions and {self.n_tokens} tokens"
                )
        return tuple(int(period) for period in periods)

    def default_periods(self) -> tuple[int, ...]:
        """Three periods spread over what fits, away from its ends; fewer in a short context.

        Raises:
            ValueError: Not even the shortest fits.
        """
        high = min(self.longest, LONGEST)
        if high < SHORTEST:
            raise ValueError(
                f"induction is looked for on repeated blocks of {SHORTEST} tokens or more: two do "
                f"not fit into {self.n_ctx} positions and {self.n_tokens} tokens"
            )
        inner = {max(SHORTEST, high * eighths // 8) for eighths in (3, 5, 7)}
        return tuple(sorted(inner if len(inner) > 1 else {SHORTEST, high}))

    def length(self, periods: Sequence[int]) -> int:
        """Three blocks of the longest period, or what fits."""
        return min(self.n_ctx, self.start + 3 * max(periods))

    def repeated(
        self, period: int, *, n: int, length: int, generator: torch.Generator
    ) -> Int[Tensor, "n length"]:
        """BOS, then a block of `period` distinct random tokens again and again."""
        if not isinstance(n, int) or n < 1:
            raise ValueError(f"n_sequences must be a whole number, at least 1; got {n!r}")
        ordinary = [t for t in range(self.n_tokens) if t != self.bos_token]
        order = torch.rand(n, len(ordinary), generator=generator).argsort(-1)[:, :period]
        block = torch.tensor(ordinary)[order]
        body = block[:, torch.arange(length - self.start) % period]
        if self.bos_token is None:
            return body
        return torch.cat([torch.full((n, 1), self.bos_token), body], 1)
