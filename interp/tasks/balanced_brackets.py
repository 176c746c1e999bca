"""Brackets: does every one close, and none before it opens?"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.batch import UNSCORED, Batch, Split
from interp.tasks.splits import draw_split

OPEN, CLOSE, BOS, ASK, NO, YES, PAD = range(7)


@dataclass(frozen=True, kw_only=True)
class BalancedBrackets:
    """BOS, brackets, "?": are they balanced, yes or no?

    length: positions of the longest sequence, BOS and "?" included. Sequences have from 1 pair
        of brackets to as many as fit, and are padded on the right (mask: False).

    Raises:
        ValueError: there is no room for a pair.
    """

    length: int = 32

    def __post_init__(self) -> None:
        if self.length < 4:
            raise ValueError(f"BOS, two brackets and '?' want a length of 4, got {self.length}")

    @property
    def max_pairs(self) -> int:
        """The most pairs of brackets that fit."""
        return (self.length - 2) // 2

    @property
    def d_vocab(self) -> int:
        """Brackets, BOS, "?", the two answers and the pad."""
        return len(self.labels)

    @property
    def n_ctx(self) -> int:
        """Positions of the longest sequence."""
        return self.length

    @property
    def bos_token(self) -> int:
        """The token that a sequence begins with."""
        return BOS

    @property
    def labels(self) -> tuple[str, ...]:
        """Each token's sign."""
        return ("(", ")", "BOS", "?", "no", "yes", "PAD")


def balanced_brackets_batch(
    config: BalancedBrackets, n: int, generator: torch.Generator, *, split: Split
) -> Batch:
    """`n` sequences; the target at "?" is `YES` or `NO`, and nothing else is scored.

    About half are balanced, each balanced string of a length equally likely. The others are, half
    and half, the right numbers of brackets in random order, and brackets by a fair coin: neither
    to count nor to look at the first or last bracket is enough.
    """

    def draw(count: int) -> Int[Tensor, "count T"]:
        return _draw(config, count, generator)

    tokens = draw_split(draw, n, split=split)
    asked = tokens == ASK
    answers = torch.where(balanced(tokens), YES, NO)[:, None]
    return Batch(tokens, tokens != PAD, torch.where(asked, answers, UNSCORED))


def balanced(tokens: Int[Tensor, "n T"]) -> Bool[Tensor, "n"]:
    """Whether all brackets of a row close, and none before it opens; other tokens don't count."""
    depth = ((tokens == OPEN).long() - (tokens == CLOSE).long()).cumsum(-1)
    return (depth >= 0).all(-1) & (depth[:, -1] == 0)


def _draw(config: BalancedBrackets, n: int, generator: torch.Generator) -> Int[Tensor, "n T"]:
    widest = 2 * config.max_pairs
    pairs = torch.randint(1, config.max_pairs + 1, (n, 1), generator=generator)
    kind = torch.randint(4, (n, 1), generator=generator)
    shuffled = _shuffled(pairs, 2 * pairs, widest, generator=generator)
    coin = torch.rand(n, widest, generator=generator) < 0.5
    is_open = torch.where(kind == 2, shuffled, coin)
    is_open = torch.where(kind < 2, _balanced_strings(pairs, widest, generator), is_open)
    place = torch.arange(config.length - 1)
    brackets = torch.where(is_open, OPEN, CLOSE)
    brackets = torch.nn.functional.pad(brackets, (0, config.length - 1 - widest), value=PAD)
    tokens = brackets.masked_fill(place == 2 * pairs, ASK).masked_fill(place > 2 * pairs, PAD)
    return torch.cat([torch.full((n, 1), BOS), tokens], 1)


def _balanced_strings(
    pairs: Int[Tensor, "n 1"], widest: int, generator: torch.Generator
) -> Bool[Tensor, "n widest"]:
    """Where a balanced string of `2 · pairs` brackets opens one, uniform over all such strings.

    The cycle lemma (Dvoretzky & Motzkin 1947): of the rotations of a sequence with one more
    "close" than "open", exactly one, begun after its first deepest point, stays balanced until
    its last sign.
    """
    count = 2 * pairs + 1
    opens = _shuffled(pairs, count, widest + 1, generator=generator)
    place = torch.arange(widest + 1)
    depth = (2 * opens.long() - 1).cumsum(-1).masked_fill(place >= count, widest + 2)
    start = depth.argmin(-1, keepdim=True) + 1
    return opens.gather(1, (start + place) % count)[:, :widest]


def _shuffled(
    opens: Int[Tensor, "n 1"], count: Int[Tensor, "n 1"], width: int, *, generator: torch.Generator
) -> Bool[Tensor, "n width"]:
    """Random places for `opens` among the first `count` of each row."""
    keys = torch.rand(len(opens), width, generator=generator)
    keys = keys.masked_fill(torch.arange(width) >= count, 2.0)
    return keys.argsort(-1).argsort(-1) < opens
