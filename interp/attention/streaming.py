"""Attention sinks and a window: what StreamingLLM lets a token see.

Trained models park attention on the first tokens. A window that slides past them breaks such a
model; keeping a few of them beside the window does not.

With positions of the text, this equals attention over {sinks} ∪ {last `window`} on the whole
sequence, and sinks move ever further away. With positions of the cache, as in the source, they stay
as near as they were in training, however long the text gets; `reindexing.py` says how.

Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks".
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from interp.attention.window import check_count, check_window, keys_between

Positions = Literal["text", "cache"]


@dataclass(frozen=True)
class Streaming:
    """A token sees the first `sinks` tokens and the last `window`, itself among them.

    Attributes:
        window: How many tokens the window holds.
        sinks: How many tokens from the start stay visible.
        positions: Where rotations and biases take a query to stand before the sinks: in the text,
            or in a cache that holds the sinks and the window only. The mask is the same.
    """

    window: int
    sinks: int = 4
    positions: Positions = "text"

    def __post_init__(self) -> None:
        check_window(self.window)
        check_count("sinks", self.sinks)
        if self.positions not in get_args(Positions):
            raise ValueError(f"positions is 'text' or 'cache', got {self.positions!r}")

    @property
    def reach(self) -> int:
        """How many keys an ordinary row sees at most."""
        return self.window + self.sinks

    def place(self, q_pos: Tensor) -> Tensor:
        """Where a query stands in a cache that holds the sinks and its window only."""
        return q_pos.clamp(max=self.reach - 1)

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True on the sinks and less than `window` back; never ahead."""
        return (k_pos <= q_pos) & ((k_pos > q_pos - self.window) | (k_pos < self.sinks))

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """`window` and those sinks that lie before it, or as many as there are."""
        first = (q_pos - self.window + 1).clamp(min=0)
        sinks = keys_between(torch.zeros_like(q_pos), first.clamp(max=self.sinks), n_keys)
        return sinks + keys_between(first, q_pos + 1, n_keys)
