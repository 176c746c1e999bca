"""Markov chains, a new one for each sequence: to be learnt in context.

Source: Edelman et al. 2024, "The Evolution of Statistical Induction Heads" (rows of the
transition matrix from a flat Dirichlet distribution, the start from the chain's stationary one,
101 symbols). A model gets better in stages: uniform, unigram, bigram.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp.tasks.batch import Batch, Split, next_token_batch, numbered
from interp.tasks.chains import Rows, stationary, walk
from interp.tasks.splits import draw_split

Order = Literal["uniform", "unigram", "bigram"]


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


def counted_predictions(
    tokens: Int[Tensor, "n T"], *, vocab: int, order: Order
) -> Float[Tensor, "n T vocab"]:
    """Log-probabilities of the next state by counts in the sequence so far, in float64.

    At position t, from the states 0 … t: all alike; `(n_j + 1) / (n + vocab)`, with `n_j` the
    times that j came; `(n_ij + 1) / (n_i + vocab)`, with `n_ij` the steps from the present state i
    to j. The last is the best that can be done for rows from a flat Dirichlet distribution, where
    the start says nothing of them.

    Raises:
        ValueError: There is no such order.
    """
    states = F.one_hot(tokens, vocab).double()
    if order == "uniform":
        counts = torch.zeros_like(states)
    elif order == "unigram":
        counts = states.cumsum(1)
    elif order == "bigram":
        steps = states[:, :-1, :, None] * states[:, 1:, None, :]
        seen = F.pad(steps.cumsum(1), (0, 0, 0, 0, 1, 0))
        counts = torch.einsum("nti,ntij->ntj", states, seen)
    else:
        raise ValueError(f"order is uniform, unigram or bigram; got {order!r}")
    return ((counts + 1) / (counts.sum(-1, keepdim=True) + vocab)).log()


def _draw(config: Markov, n: int, generator: torch.Generator) -> Int[Tensor, "n T"]:
    # Exponential weights, normalised, are a flat Dirichlet draw.
    weights = torch.empty(n, config.vocab, config.vocab, dtype=torch.float64)
    weights.exponential_(generator=generator)
    transitions = weights / weights.sum(-1, keepdim=True)
    start, rows = Rows(stationary(transitions)), Rows(transitions.flatten(0, 1))
    return walk(start, rows, chain=torch.arange(n), length=config.length, generator=generator)
