"""Reversal: the items backwards, in one sequence or as a source and what is made of it."""

from dataclasses import dataclass

import torch

from interp.tasks.batch import Batch, Split
from interp.tasks.items import Items, answered, draw_items


@dataclass(frozen=True, kw_only=True)
class Reverse(Items):
    """BOS, random items, a separator, and the items backwards.

    vocab: number of different items; BOS and the separator come after them.
    length: positions of a sequence, `2 · items + 2`.
    encoder_decoder: the items are a `source` for an encoder instead, and the decoder's tokens
        are BOS and what it has said: `items` positions, all of them scored. The decoder's
        position t is answered by the source's `items − 1 − t`: an anti-diagonal.
    """

    encoder_decoder: bool = False

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence: of the longer one of a pair."""
        return self.items if self.encoder_decoder else self.length


def reverse_batch(config: Reverse, n: int, generator: torch.Generator, *, split: Split) -> Batch:
    """`n` sequences or pairs; each item of the reversed half is a target. Items may repeat.

    Both forms draw the same items from the same generator.
    """
    items = draw_items(config, n, generator, split=split)
    backwards = items.flip(-1)
    if not config.encoder_decoder:
        return answered(config, items, backwards)
    said = torch.cat([torch.full((n, 1), config.bos_token), backwards[:, :-1]], 1)
    return Batch(said, torch.ones_like(said, dtype=torch.bool), backwards, source=items)
