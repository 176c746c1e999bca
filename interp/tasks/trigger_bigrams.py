"""Bigrams, with triggers whose successor is another one in each sequence: memory against context.

Source: Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint". They take the bigrams of
the characters of a text; ours are those of a random chain, the same for everybody, with a
frequency of tokens that is as uneven. A trigger's output is never itself a trigger.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.tasks.batch import Batch, Split, next_token_batch
from interp.tasks.chains import Rows, stationary, walk
from interp.tasks.splits import draw_split


@dataclass(frozen=True, kw_only=True)
class TriggerBigrams:
    """A walk along a fixed chain, in which each trigger has an output of this sequence's own.

    vocab: number of tokens. There is no BOS.
    length: positions of a sequence.
    triggers: how many; they are the chain's most frequent tokens.
    chain_seed: which chain.
    scored: "outputs" asks what follows a trigger from its second occurrence on, when it can be
        known; "all" asks for every next token.

    Raises:
        ValueError: there are too few tokens to be outputs, or fewer than three positions.
    """

    vocab: int = 64
    length: int = 128
    triggers: int = 5
    chain_seed: int = 0
    scored: Literal["outputs", "all"] = "outputs"

    def __post_init__(self) -> None:
        if not 1 <= self.triggers <= self.vocab // 2:
            raise ValueError(
                f"trigger_bigrams wants 1 or more triggers and as many other tokens, got "
                f"{self.triggers} triggers in a vocabulary of {self.vocab}"
            )
        if self.length < 3:
            raise ValueError(f"trigger_bigrams wants a length of 3 or more, got {self.length}")

    @property
    def d_vocab(self) -> int:
        """The chain's tokens."""
        return self.vocab

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> None:
        """None: a sequence begins anywhere on the chain."""
        return

    @property
    def labels(self) -> tuple[str, ...]:
        """Numbers; a trigger has an exclamation mark."""
        marked = set(trigger_tokens(self).tolist())
        return tuple(f"{i}!" if i in marked else f"{i}" for i in range(self.vocab))


def trigger_bigrams_batch(
    config: TriggerBigrams, n: int, generator: torch.Generator, *, split: Split
) -> Batch:
    """`n` sequences of the split; see `scored` for what is asked.

    Bigrams alone say nothing of the outputs, which are uniform over the other tokens.
    """

    def draw(count: int) -> Int[Tensor, "count T"]:
        return _draw(config, count, generator)

    tokens = draw_split(draw, n, split=split)
    if config.scored == "all":
        return next_token_batch(tokens)
    return next_token_batch(tokens, scored=_known(tokens, trigger_tokens(config)))


def transitions(config: TriggerBigrams) -> Float[Tensor, "V V"]:
    """The chain's probabilities, rows: from, columns: to; triggers are as other tokens here."""
    seeded = torch.Generator().manual_seed(config.chain_seed)
    common = torch.randn(config.vocab, generator=seeded, dtype=torch.float64)
    own = torch.randn(config.vocab, config.vocab, generator=seeded, dtype=torch.float64)
    return (common + 1.5 * own).softmax(-1)


def trigger_tokens(config: TriggerBigrams) -> Int[Tensor, "triggers"]:
    """The tokens that are triggers, in every sequence the same."""
    return _chain(config)[2]


@lru_cache(maxsize=8)
def _chain(config: TriggerBigrams) -> tuple[Rows, Rows, Int[Tensor, "triggers"]]:
    """The first token's distribution, the chain's transitions, the triggers."""
    matrix = transitions(config)
    first = stationary(matrix)
    triggers = first.topk(config.triggers).indices.sort().values
    return Rows(first[None]), Rows(matrix), triggers


def _draw(config: TriggerBigrams, n: int, generator: torch.Generator) -> Int[Tensor, "n T"]:
    start, rows, triggers = _chain(config)
    is_other = torch.ones(config.vocab, dtype=torch.bool).index_fill(0, triggers, False)
    others = is_other.nonzero().squeeze(1)
    drawn = torch.rand(n, len(others), generator=generator).argsort(-1)[:, : config.triggers]
    forced = torch.full((n, config.vocab), -1).index_copy(1, triggers, others[drawn])
    return walk(
        start,
        rows,
        chain=torch.zeros(n, dtype=torch.long),
        length=config.length,
        generator=generator,
        forced=forced,
    )


def _known(tokens: Int[Tensor, "n T"], triggers: Int[Tensor, "triggers"]) -> Bool[Tensor, "n T"]:
    """Positions of a trigger that occurred earlier in its sequence."""
    here = tokens[..., None] == triggers
    return (here & (here.long().cumsum(1) > 1)).any(-1)
