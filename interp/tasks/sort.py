"""Sorting: the items in ascending order, after a separator."""

from dataclasses import dataclass

import torch

from interp.tasks.batch import Batch, Split
from interp.tasks.items import Items, answered, draw_items


@dataclass(frozen=True, kw_only=True)
class Sort(Items):
    """BOS, random items, a separator, and the items in ascending order.

    vocab: number of different items; BOS and the separator come after them.
    length: positions of a sequence, `2 · items + 2`.
    """

    vocab: int = 32
    length: int = 22


def sort_batch(config: Sort, n: int, generator: torch.Generator, *, split: Split) -> Batch:
    """`n` sequences; each item of the sorted half is a target, equal ones as often as they are.

    The splits share no unsorted sequence; two orders of the same items may be on either side.
    """
    items = draw_items(config, n, generator, split=split)
    return answered(config, items, items.sort(-1).values)
