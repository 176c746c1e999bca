"""Longformer: a window, and a few global tokens that see and are seen by everybody.

Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer" §3.1. Their global tokens
have projections of their own; here all tokens share theirs. Their window is symmetric, as ours is
with `causal=False`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.attention.window import check_count, check_window, keys_between


@dataclass(frozen=True)
class Longformer:
    """A token sees a window and the global tokens; a global token sees all.

    Attributes:
        window: How many tokens a window holds, the token itself among them. Causal: it ends at the
            token. Otherwise it is centred there, and must be odd.
        global_tokens: Their positions.
        causal: Nobody sees what comes later, global tokens neither.
    """

    window: int
    global_tokens: tuple[int, ...] = (0,)
    causal: bool = True

    def __post_init__(self) -> None:
        check_window(self.window)
        if not self.causal and self.window % 2 == 0:
            raise ValueError(f"a symmetric window has a middle: wanted it odd, got {self.window}")
        tokens = self.global_tokens
        if not isinstance(tokens, tuple):
            raise ValueError(f"global_tokens must be a tuple of positions, got {tokens!r}")
        for token in tokens:
            check_count("a global token", token)
        if list(tokens) != sorted(set(tokens)):
            raise ValueError(f"global_tokens are rising positions from 0 up, got {tokens}")

    @property
    def reach(self) -> int:
        """How many keys an ordinary row sees at most."""
        return self.window + len(self.global_tokens)

    @property
    def before(self) -> int:
        """How far back the window reaches."""
        return self.window - 1 if self.causal else self.window // 2

    @property
    def after(self) -> int:
        """How far ahead the window reaches."""
        return 0 if self.causal else self.window // 2

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True inside the window, and where either of the two is global."""
        seen = (k_pos >= q_pos - self.before) & (k_pos <= q_pos + self.after)
        seen = seen | self._is_global(q_pos) | self._is_global(k_pos)
        return seen & (k_pos <= q_pos) if self.causal else seen

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """The window and the global tokens outside it; all there are for a global token."""
        first, stop = q_pos - self.before, q_pos + self.after + 1
        visible = keys_between(first, stop, n_keys)
        for token in self.global_tokens:
            outside = (token < first) | ((token >= stop) & (not self.causal))
            visible = visible + (outside & (token < n_keys))
        everything = torch.minimum(q_pos + 1, n_keys) if self.causal else n_keys
        return torch.where(self._is_global(q_pos), everything.clamp(min=0), visible)

    def _is_global(self, pos: Tensor) -> Tensor:
        found = torch.zeros_like(pos, dtype=torch.bool)
        for token in self.global_tokens:
            found = found | (pos == token)
        return found
