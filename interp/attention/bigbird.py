"""BigBird: blocks of a window, of global tokens, and a few drawn at random.

Source: Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences" §2 and appendix D. Theirs
is bidirectional, with a plan for each head; ours is causal, with one plan for a layer that depends
on nothing but `seed` and the query's block, so that a sequence can grow without changing its past.
"""

from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention.window import check_count, check_window

LOW = (1 << 32) - 1


@dataclass(frozen=True)
class BigBird:
    """A token sees, of the blocks up to its own, the last ones, the first ones and random ones.

    Attributes:
        window: Tokens in the window, a multiple of `block`: the token's own block, as far as the
            token, and the blocks before it.
        global_blocks: How many blocks from the start everybody sees.
        random_blocks: How many further blocks are drawn for each block of queries; never one that
            is seen anyway.
        block: Tokens in a block.
        seed: Of the draw.
    """

    window: int
    global_blocks: int = 1
    random_blocks: int = 3
    block: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_window(self.window)
        for name in ("global_blocks", "random_blocks", "block", "seed"):
            check_count(name, getattr(self, name))
        if self.block < 1 or self.window % self.block:
            raise ValueError(
                f"window must be a multiple of block; got window {self.window}, block {self.block}"
            )

    @property
    def reach(self) -> int:
        """How many keys an ordinary row sees at most."""
        return self.window + (self.global_blocks + self.random_blocks) * self.block

    @property
    def window_blocks(self) -> int:
        """Blocks in the window, the query's own among them."""
        return self.window // self.block

    @property
    def full_from(self) -> int:
        """The first block of queries for which there are as many blocks to see as it may see."""
        return self.window_blocks - 1 + self.global_blocks + self.random_blocks

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True where the key's block is one of those that the query's block sees; never ahead."""
        q_block, k_block = q_pos.div(self.block, rounding_mode="floor"), k_pos // self.block
        seen = (k_block > q_block - self.window_blocks) | (k_block < self.global_blocks)
        drawn = self.drawn(q_block)
        for slot in range(self.random_blocks):
            seen = seen | (drawn[..., slot] == k_block)
        return seen & (k_pos <= q_pos)

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """Keys in the blocks that it sees, up to itself."""
        starts = self.seen_from(q_pos.div(self.block, rounding_mode="floor"))
        stop = torch.minimum(q_pos + 1, n_keys)[..., None]
        inside = (stop - starts * self.block).clamp(min=0, max=self.block)
        return (inside * (starts >= 0)).sum(-1)

    def table(self, n_blocks: int) -> Int[Tensor, "n_blocks slot"]:
        """The blocks that each block of queries sees, each once, its own last; −1: none."""
        return self.seen_from(torch.arange(n_blocks))

    def seen_from(self, q_block: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch slot"]:
        """The same for some blocks of queries."""
        own, device = q_block[..., None], q_block.device
        near = own - torch.arange(self.window_blocks - 1, -1, -1, device=device)
        first = torch.arange(self.global_blocks, device=device)
        first = torch.where(first <= own - self.window_blocks, first, -1)
        return torch.cat([first, self.drawn(q_block), near.clamp(min=-1)], -1)

    def plan(self, n_blocks: int) -> Int[Tensor, "n_blocks random"]:
        """The random blocks of the first blocks of queries."""
        return self.drawn(torch.arange(n_blocks))

    def drawn(self, q_block: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch random"]:
        """The random blocks of each block of queries; −1 where there are not enough to draw.

        Drawn without replacement, from nothing but the seed and the block's number.

        Source: Bentley and Floyd 1987, "A sample of brilliance", done for all blocks at once.
        """
        free = (q_block - self.window_blocks + 1 - self.global_blocks).clamp(min=0)
        chosen: list[Tensor] = []
        for slot in range(self.random_blocks):
            last = (free - self.random_blocks).clamp(min=0) + slot
            found = (_uniform(self.seed, q_block, slot) * (last + 1)).long()
            taken = torch.zeros_like(found, dtype=torch.bool)
            for earlier in chosen:
                taken = taken | (earlier == found + self.global_blocks)
            choice = torch.where(taken, last, found) + self.global_blocks
            chosen.append(torch.where(slot < free, choice, -1))
        return torch.stack(chosen, -1) if chosen else q_block.new_zeros(*q_block.shape, 0)


def _uniform(seed: int, block: Int[Tensor, "*batch"], slot: int) -> Float[Tensor, "*batch"]:
    """Numbers in [0, 1) that depend on these three only: no generator, so that graphs hold it."""
    start = _mixed((seed ^ (seed >> 32)) & LOW)
    return _mixed((_mixed((block + start) & LOW) + slot) & LOW).double() / (LOW + 1)


Whole = TypeVar("Whole", int, Tensor)


def _mixed(x: Whole) -> Whole:
    """A hash of 32 bits.

    Source: Wellons 2018, "Prospecting for Hash Functions".
    """
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & LOW
    x = ((x ^ (x >> 15)) * 0x735A2D97) & LOW
    return x ^ (x >> 15)
