"""Markov chains, a new one for each sequence: to be learnt in context.

Source: Edelman et al. 2024, "The Evolution of Statistical Induction Heads" (rows of the
transition matrix from a flat Dirichlet distribution, the start from the chain's stationary one,
101 symbols). A model gets better in stages: uniform, unigram, bigram.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import Batch, Split, next_token_batch, numbered
from interp.tasks.chains import Rows, stationary, walk
from interp.tasks.splits import draw_split


@dataclass(frozen=True, kw_only=True)
class Markov:
    """A walk along a random Markov chain, another one for each sequence.

    vocab: number of states, each a token. There is no BOS.
    length: positions of a sequence; all but the last are scored.

    Raises:
        ValueError: fewer than two states or positions.
    """

    vocab: int = 3
    length: int = 101

    def __post_init__(self) -> None:
        if self.vocab < 2 or self.length < 2:
            raise ValueError(
                f"markov wants 2 or more states and positions, got vocab {self.vocab} and "
                f"length {self.length}"
            )

    @property
    def d_vocab(self) -> int:
        """The states."""
        return self.vocab

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> None:
        """None: a sequence begins with a state."""
        return

    @property
    def labels(self) -> tuple[str, ...]:
        """Numbers."""
        return numbered(self.vocab)


def markov_batch(config: Markov, n: int, generator: torch.Generator, *, split: Split) -> Batch:
    """`n` sequences, each from a chain of its own; every next state is a target.

    The best prediction in context is `(n_ij + 1) / (n_i + vocab)`, with `n_ij` the steps from i
    to j so far and `n_i` those from i. With two states a walk may well stay in one throughout;
    such a sequence is on one side only, so the splits' mean losses differ there (by .016 nats).
    """

    def draw(count: int) -> Int[Tensor, "count T"]:
        return _draw(config, count, generator)

    return next_token_batch(draw_split(draw, n, split=split))


def _draw(config: Markov, n: int, generator: torch.Generator) -> Int[Tensor, "n T"]:
    # Exponential weights, normalised, are a flat Dirichlet draw.
    weights = torch.empty(n, config.vocab, config.vocab, dtype=torch.float64)
    weights.exponential_(generator=generator)
    transitions = weights / weights.sum(-1, keepdim=True)
    start, rows = Rows(stationary(transitions)), Rows(transitions.flatten(0, 1))
    return walk(start, rows, chain=torch.arange(n), length=config.length, generator=generator)
