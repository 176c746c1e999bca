"""Addition modulo p: the task on which networks grok.

Source: Power et al. 2022; Nanda et al. 2023, "Progress measures for grokking via mechanistic
interpretability" (p = 113, tokens a, b and "=", 30 % of all pairs for training).
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import UNSCORED, Batch, Split, numbered


@dataclass(frozen=True, kw_only=True)
class ModularAddition:
    """a, b and "=": what is a + b modulo p?

    p: the modulus; numbers are the tokens 0 … p − 1, and "=" is p.
    fraction: the share of all p² pairs that training draws from; the rest is held out.
    split_seed: which pairs those are.

    Raises:
        ValueError: a modulus or a fraction that leaves one of the splits without pairs.
    """

    p: int = 113
    fraction: float = 0.3
    split_seed: int = 0

    def __post_init__(self) -> None:
        if self.p < 2:
            raise ValueError(f"the modulus p is 2 or more, got {self.p}")
        if not 0 < self.train_pairs < self.p**2:
            raise ValueError(
                f"fraction {self.fraction} of {self.p**2} pairs leaves training or held-out "
                f"data without any: take one between 0 and 1"
            )

    @property
    def train_pairs(self) -> int:
        """How many pairs training has."""
        return int(self.fraction * self.p**2)

    @property
    def d_vocab(self) -> int:
        """The numbers and "="."""
        return self.p + 1

    @property
    def n_ctx(self) -> int:
        """A, b, "="."""
        return 3

    @property
    def bos_token(self) -> None:
        """None: a sequence begins with a number."""
        return

    @property
    def labels(self) -> tuple[str, ...]:
        """Numbers, and the sign."""
        return numbered(self.p, "=")


def modular_addition_batch(
    config: ModularAddition, n: int, generator: torch.Generator, *, split: Split
) -> Batch:
    """`n` of the split's pairs, drawn with replacement; only the position of "=" is scored."""
    pairs = _pairs(config, split)
    return _asked(config, pairs[torch.randint(len(pairs), (n,), generator=generator)])


def every_pair(config: ModularAddition, *, split: Split) -> Batch:
    """All pairs of the split, once each: the full batch of the published experiments."""
    return _asked(config, _pairs(config, split))


@lru_cache(maxsize=8)
def _pairs(config: ModularAddition, split: Split) -> Int[Tensor, "n 2"]:
    numbers = torch.arange(config.p)
    order = torch.randperm(config.p**2, generator=torch.Generator().manual_seed(config.split_seed))
    shuffled = torch.cartesian_prod(numbers, numbers)[order]
    here, rest = shuffled[: config.train_pairs], shuffled[config.train_pairs :]
    return here if split == "train" else rest


def _asked(config: ModularAddition, pairs: Int[Tensor, "n 2"]) -> Batch:
    tokens = torch.cat([pairs, torch.full((len(pairs), 1), config.p)], 1)
    targets = torch.full_like(tokens, UNSCORED)
    targets[:, -1] = pairs.sum(-1) % config.p
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)
