"""Attention sinks and a window: what StreamingLLM lets a token see.

Trained models park attention on the first tokens. A window that slides past them breaks such a
model; keeping a few of them beside the window does not.

Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks". Theirs
re-indexes positions inside the cache while it streams; this mask leaves positions as they are, and
so equals attention over {sinks} ∪ {last `window`} on the whole sequence.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.attention.window import check_count, check_window, keys_between


@dataclass(frozen=True)
class Streaming:
    """A token sees the first `sinks` tokens and the last `window`, itself among them."""

    window: int
    sinks: int = 4

    def __post_init__(self) -> None:
        check_window(self.window)
        check_count("sinks", self.sinks)

    @property
    def reach(self) -> int:
        """How many keys an ordinary row sees at most."""
        return self.window + self.sinks

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True on the sinks and less than `window` back; never ahead."""
        return (k_pos <= q_pos) & ((k_pos > q_pos - self.window) | (k_pos < self.sinks))

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """`window` and those sinks that lie before it, or as many as there are."""
        first = (q_pos - self.window + 1).clamp(min=0)
        sinks = keys_between(torch.zeros_like(q_pos), first.clamp(max=self.sinks), n_keys)
        return sinks + keys_between(first, q_pos + 1, n_keys)
