"""How training and held-out data come to share no sequence, however much is drawn of either.

A sequence belongs to one of the splits by a hash of its content: one in eight is held out. The
hash is the same in every process and on every machine, so nothing has to be remembered, and a
sequence that was trained on cannot turn up among the held-out ones later. A draw for a split
draws some more than are needed and keeps those that belong to it.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.tasks.batch import Split

HELD_OUT_EVERY = 8
_PRIME = 2**31 - 1  # products of two residues fit into int64
_BASE = 48271
_ROUNDS = 64


def belongs(sequences: Int[Tensor, "n k"], split: Split) -> Bool[Tensor, "n"]:
    """Which sequences are of the split.

    A polynomial hash modulo a prime, squared so that neighbours do not follow each other.
    """
    residues = ((sequences + 2) * _powers(sequences.shape[1])).sum(-1) % _PRIME
    held_out = residues * residues % _PRIME % HELD_OUT_EVERY == 0
    return held_out if split == "held_out" else ~held_out


def draw_split(
    draw: Callable[[int], Int[Tensor, "n k"]], n: int, *, split: Split
) -> Int[Tensor, "n k"]:
    """`n` of the sequences that `draw(count)` makes, all of the split.

    Raises:
        ValueError: none turn up, since there are hardly any different sequences.
    """
    share = 1 / HELD_OUT_EVERY if split == "held_out" else 1 - 1 / HELD_OUT_EVERY
    kept, missing = [], n
    for _ in range(_ROUNDS):
        drawn = draw(ceil(1.15 * missing / share) + 8)
        kept.append(drawn[belongs(drawn, split)][:missing])
        missing -= len(kept[-1])
        if missing == 0:
            return torch.cat(kept) if len(kept) > 1 else kept[0]
    raise ValueError(
        f"the task has too few different sequences to hold some out: no {split} ones in "
        f"{_ROUNDS} rounds; make it longer, or its vocabulary larger"
    )


@lru_cache(maxsize=64)
def _powers(count: int) -> Int[Tensor, "k"]:
    powers = [pow(_BASE, 64, _PRIME)]
    for _ in range(count - 1):
        powers.append(powers[-1] * _BASE % _PRIME)
    return torch.tensor(powers)
