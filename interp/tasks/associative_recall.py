"""Recall of several key–value pairs, asked for later in the same sequence.

Source: Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models"
(multi-query associative recall, MQAR): pairs first, then each key once more, at gaps that follow
a power law, the other places filled at random. We draw sequences anew instead of a fixed set.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.tasks.batch import UNSCORED, Batch, Split
from interp.tasks.splits import draw_split


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall:
    """Pairs of key and value, then the keys again: which value went with each?

    vocab: all tokens; the lower half are keys (0 is none), the upper half values. No BOS.
    length: positions of a sequence, an even number.
    pairs: key–value pairs of a sequence; each key is asked for once.
    power: exponent of the gaps' distribution, `gap ** (power − 1)`: near 0, most keys are asked
        for soon after the pairs; 1 is uniform.

    Raises:
        ValueError: the pairs do not fit into `vocab` or `length`.
    """

    vocab: int = 64
    length: int = 64
    pairs: int = 8
    power: float = 0.01

    def __post_init__(self) -> None:
        if self.length % 2 or self.pairs < 1 or self.length < 4 * self.pairs:
            raise ValueError(
                f"associative_recall wants an even length of at least 4 positions a pair, "
                f"got length {self.length} and {self.pairs} pairs"
            )
        if self.keys - 1 < self.pairs:
            raise ValueError(
                f"a vocabulary of {self.vocab} has {self.keys - 1} keys, too few for "
                f"{self.pairs} different ones"
            )
        if self.power <= 0:
            raise ValueError(f"power is above 0, got {self.power}")

    @property
    def keys(self) -> int:
        """The first token that is a value."""
        return self.vocab // 2

    @property
    def d_vocab(self) -> int:
        """Keys and values."""
        return self.vocab

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> None:
        """None: a sequence begins with a key."""
        return

    @property
    def labels(self) -> tuple[str, ...]:
        """Keys as k1 …, values as v0 …, and the token that is neither."""
        values = (f"v{i}" for i in range(self.vocab - self.keys))
        return ("–", *(f"k{i}" for i in range(1, self.keys)), *values)


def associative_recall_batch(
    config: AssociativeRecall, n: int, generator: torch.Generator, *, split: Split
) -> Batch:
    """`n` sequences; at each asked key the target is its value, which does not come next.

    What fills the gaps is any token, a key of this sequence included, and is not scored.
    """

    def draw(count: int) -> Int[Tensor, "count 2T"]:
        return torch.cat(_draw(config, count, generator), 1)

    tokens, targets = draw_split(draw, n, split=split).split(config.length, dim=1)
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)


def _draw(
    config: AssociativeRecall, n: int, generator: torch.Generator
) -> tuple[Int[Tensor, "n T"], Int[Tensor, "n T"]]:
    pairs, context = config.pairs, 2 * config.pairs
    keys = 1 + _distinct(torch.ones(config.keys - 1), n, pairs, generator=generator)
    values = torch.ones(config.vocab - config.keys)
    values = config.keys + _distinct(values, n, pairs, generator=generator)
    tokens = torch.randint(config.vocab, (n, config.length), generator=generator)
    tokens[:, 0:context:2], tokens[:, 1:context:2] = keys, values
    gap = torch.arange(1, (config.length - context) // 2 + 1)
    gaps = _distinct(gap ** (config.power - 1), n, pairs, generator=generator)
    asked = context + 2 * gaps
    targets = torch.full_like(tokens, UNSCORED).scatter(1, asked, values)
    return tokens.scatter(1, asked, keys), targets


def _distinct(
    weights: Float[Tensor, "k"], n: int, count: int, *, generator: torch.Generator
) -> Int[Tensor, "n count"]:
    """`n` times `count` different indices, drawn one after the other by weight.

    The first arrivals of Poisson processes with those rates.
    """
    arrivals = torch.empty(n, len(weights)).exponential_(generator=generator) / weights
    return arrivals.topk(count, largest=False).indices
