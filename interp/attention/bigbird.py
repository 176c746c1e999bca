"""BigBird: blocks of a window, of global tokens, and a few drawn at random.

Source: Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences" §2 and appendix D. Theirs
is bidirectional, with a plan for each head; ours is causal, with one plan for a layer that depends
on nothing but `seed` and the query's block, so that a sequence can grow without changing its past.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from interp.attention.window import check_count, check_window


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

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True where the key's block is one of those that the query's block sees; never ahead."""
        q_block, k_block = q_pos.div(self.block, rounding_mode="floor"), k_pos // self.block
        seen = (k_block > q_block - self.window_blocks) | (k_block < self.global_blocks)
        plan = self._plan_for(q_block)
        for slot in range(self.random_blocks):
            seen = seen | (plan[..., slot] == k_block)
        return seen & (k_pos <= q_pos)

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """Keys in the blocks that it sees, up to itself."""
        q_block = q_pos.div(self.block, rounding_mode="floor").clamp(min=0)
        blocks = self.table(int(q_block.max()) + 1 if q_block.numel() else 1).to(q_pos.device)
        starts = blocks[q_block]
        stop = torch.minimum(q_pos + 1, n_keys)[..., None]
        inside = (stop - starts * self.block).clamp(min=0, max=self.block)
        return (inside * (starts >= 0)).sum(-1)

    def table(self, n_blocks: int) -> Int[Tensor, "n_blocks slot"]:
        """The blocks that each block of queries sees, each once, its own last; −1: none."""
        own = torch.arange(n_blocks)[:, None]
        near = own - torch.arange(self.window_blocks - 1, -1, -1)
        first = torch.arange(self.global_blocks).expand(n_blocks, -1)
        first = torch.where(first <= own - self.window_blocks, first, -1)
        return torch.cat([first, self.plan(n_blocks), near.clamp(min=-1)], 1)

    def plan(self, n_blocks: int) -> Int[Tensor, "n_blocks random"]:
        """The random blocks of each block of queries; −1 where there are not enough to draw."""
        return _plan(self, 1 << max(0, n_blocks - 1).bit_length())[:n_blocks]

    def _plan_for(self, q_block: Tensor) -> Tensor:
        """Rows of the plan; a query ahead of position 0 gets the first, which is empty."""
        n_blocks = int(q_block.max()) + 1 if q_block.numel() else 1
        return self.plan(max(1, n_blocks)).to(q_block.device)[q_block.clamp(min=0)]


@lru_cache(maxsize=64)
def _plan(rule: BigBird, n_blocks: int) -> Int[Tensor, "n_blocks random"]:
    """Draw without replacement, the same for a block however many blocks there are.

    Source: Bentley and Floyd 1987, "A sample of brilliance", done for all rows at once.
    """
    generator = torch.Generator().manual_seed(rule.seed)
    draws = torch.rand(n_blocks, rule.random_blocks, generator=generator, dtype=torch.float64)
    free = (torch.arange(n_blocks) - rule.window_blocks + 1 - rule.global_blocks).clamp(min=0)
    plan = torch.full((n_blocks, rule.random_blocks), -1)
    for slot in range(rule.random_blocks):
        last = (free - rule.random_blocks).clamp(min=0) + slot
        drawn = (draws[:, slot] * (last + 1)).long()
        taken = (plan == (drawn + rule.global_blocks)[:, None]).any(1)
        choice = torch.where(taken, last, drawn) + rule.global_blocks
        plan[:, slot] = torch.where(slot < free, choice, -1)
    return plan
