"""Copying: the same items again, after a separator."""

from dataclasses import dataclass

import torch

from interp.tasks.batch import Batch, Split
from interp.tasks.items import Items, answered, draw_items


@dataclass(frozen=True, kw_only=True)
class Copy(Items):
    """BOS, random items, a separator, and the items once more.

    vocab: number of different items; BOS and the separator come after them.
    length: positions of a sequence, `2 · items + 2`.
    """


def copy_batch(config: Copy, n: int, generator: torch.Generator, *, split: Split) -> Batch:
    """`n` sequences; each item of the second half is a target. Items may repeat.

    Every sequence has the same number of items: to look that far back is a way to solve it.
    """
    items = draw_items(config, n, generator, split=split)
    return answered(config, items, items)
