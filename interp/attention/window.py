"""Sliding-window attention: a token sees the tokens just before it.

Cheap at any length, and the layers above still reach further: L layers of window w see
L·(w − 1) tokens back.

Source: Beltagy et al. 2020, "Longformer" §3.1; Jiang et al. 2023, "Mistral 7B" §2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """A token sees the last `window` tokens, itself among them."""

    window: int

    def __post_init__(self) -> None:
        check_window(self.window)

    @property
    def reach(self) -> int:
        """How many keys an ordinary row sees at most."""
        return self.window

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True less than `window` back."""
        return (k_pos <= q_pos) & (k_pos > q_pos - self.window)

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """`window`, or as many as there are."""
        return keys_between(q_pos - self.window + 1, q_pos + 1, n_keys)


def check_window(window: int) -> None:
    """Refuse a window that does not even hold the token itself."""
    check_count("window", window)
    if window < 1:
        raise ValueError(f"window must be at least 1 (the token itself), got {window}")


def check_count(name: str, value: int) -> None:
    """Refuse an option that is no whole number from 0 up."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")


def keys_between(first: Tensor, stop: Tensor, n_keys: Tensor) -> Tensor:
    """How many of the keys 0 … n_keys − 1 lie in [first, stop)."""
    return (torch.minimum(stop, n_keys) - first.clamp(min=0)).clamp(min=0)
