"""Tokens that fill much of a sequence: their matches are summed in the packed run itself.

Under a causal rule every key that a row sees is earlier, or its own. So the share on a token's
earlier occurrences is the mean of "is this token" under the row's pattern, less the row's weight
on itself; and the share on what followed them is the mean of "follows this token". These are two
columns of values in a run that is made anyway; as attention calls of their own, the occurrences of
a token that is everywhere would cost as much as attention does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.probes.rows import Bucket

SHARE, LEAST, MOST = 1 / 8, 256, 3
"""Part of the slots, and number of them, from which a token is frequent; columns an example."""


def parted(
    buckets: Sequence[Bucket], *, batch: int, length: int
) -> tuple[list[Bucket], list[Bucket]]:
    """The buckets without the groups of frequent tokens, and these: at most `MOST` an example."""
    rest, frequent, room = [], [], torch.full((batch,), MOST)
    for bucket in reversed(buckets):  # the largest come first
        chosen = bucket.real.sum(-1) >= max(LEAST, SHARE * length)
        for group in chosen.nonzero()[:, 0].tolist():
            example = int(bucket.slots[group, 0]) // length
            chosen[group] = room[example] > 0
            room[example] -= 1
        if bool(chosen.any()):
            frequent.append(Bucket(bucket.slots[chosen], bucket.real[chosen]))
        if not bool(chosen.all()):
            rest.append(Bucket(bucket.slots[~chosen], bucket.real[~chosen]))
    return rest[::-1], frequent


@dataclass(frozen=True)
class Frequent:
    """Where a batch's frequent tokens are.

    Attributes:
        column: Which of its example's frequent tokens a slot holds; −1: none.
        first: Whether a slot holds a frequent token's first occurrence.
        same: 1 where a key is the token of a column.
        after: 1 where a key follows one that is.
    """

    column: Int[Tensor, "batch pos"]
    first: Bool[Tensor, "batch pos"]
    same: Float[Tensor, "batch pos column"]
    after: Float[Tensor, "batch pos column"]

    @classmethod
    def of(
        cls, buckets: Sequence[Bucket], after: Int[Tensor, " slot"], *, batch: int, length: int
    ) -> "Frequent":
        """From the groups of slots that hold these tokens, and the slot after each slot."""
        column = torch.full_like(after, -1)
        first = torch.zeros_like(after, dtype=torch.bool)
        same = torch.zeros(len(after), MOST, device=after.device)
        follows, used = same.clone(), [0] * batch
        for bucket in buckets:
            for slots, real in zip(bucket.slots, bucket.real, strict=True):
                own = slots[real]
                example = int(own[0]) // length
                at, used[example] = used[example], used[example] + 1
                column[own], first[own[0]], same[own, at] = at, True, 1.0
                follows[after[own[:-1]], at] = 1.0
        shape, width = (batch, length), max(used)
        same, follows = same[:, :width], follows[:, :width]
        return cls(
            column.view(shape), first.view(shape), same.view(*shape, -1), follows.view(*shape, -1)
        )

    def features(self) -> list[Float[Tensor, "batch 1 pos column"]]:
        """What is to be averaged under the pattern."""
        return [self.same[:, None], self.after[:, None]]

    def filled_in(
        self,
        weights: Sequence[Float[Tensor, "batch head pos"]],
        shares: Sequence[Float[Tensor, "batch head pos column"]],
        own: Float[Tensor, "batch head pos"],
    ) -> list[Float[Tensor, "batch head pos"]]:
        """The weights on earlier occurrences, and after them, with the frequent tokens' rows."""
        index = self.column.clamp(min=0)[:, None, :, None].expand(*own.shape, 1)
        same, after = (share.gather(3, index)[..., 0] for share in shares)
        mine = (self.column >= 0)[:, None]
        found = []
        for weight, share in zip(weights, (same - own, after), strict=True):
            share = share.clamp(0.0, 1.0).masked_fill(self.first[:, None], float("nan"))
            found.append(torch.where(mine, share, weight))
        return found
