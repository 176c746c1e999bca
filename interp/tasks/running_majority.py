"""The majority so far: a task whose head must spread evenly over all it sees.

The answer to "a near-uniform head does little": here it does everything. Each target needs the
mean of all bits so far, and no recent part of them is enough.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import UNSCORED, Batch, Split
from interp.tasks.splits import draw_split


@dataclass(frozen=True, kw_only=True)
class RunningMajority:
    """Fair bits, and at each of them: which has been the majority so far?

    length: positions of a sequence, one bit each. There is no BOS: every key is a bit, so that
        the head that counts them is uniform over all that it sees.

    Raises:
        ValueError: fewer than two bits.
    """

    length: int = 32

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"running_majority wants a length of 2 or more, got {self.length}")

    @property
    def d_vocab(self) -> int:
        """The two bits."""
        return 2

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> None:
        """None: a sequence begins with a bit."""
        return

    @property
    def labels(self) -> tuple[str, ...]:
        """The bits."""
        return ("0", "1")


def running_majority_batch(
    config: RunningMajority, n: int, generator: torch.Generator, *, split: Split
) -> Batch:
    """`n` sequences of fair bits; the target at t is the majority of bits 0 … t.

    A tie is not scored. To repeat the last bit is right in most of the first few positions, and
    less and less often after that.
    """

    def draw(count: int) -> Int[Tensor, "count T"]:
        return torch.randint(2, (count, config.length), generator=generator)

    bits = draw_split(draw, n, split=split)
    lead = (2 * bits - 1).cumsum(-1)
    targets = (lead > 0).long().masked_fill(lead == 0, UNSCORED)
    return Batch(bits, torch.ones_like(bits, dtype=torch.bool), targets)
