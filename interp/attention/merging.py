"""Attention over parts of the keys, put together by log-sum-exp: exactly attention over all."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.lse import Fused


@dataclass
class Merged:
    """What is known of rows from the keys seen so far.

    Attributes:
        log_sum_exp: Natural, [B H Tq]; −inf where nothing has been seen.
        energy: Expected score, [B H Tq], or None.
        mixed: Means of the values, [B H Tq F] each.
    """

    log_sum_exp: Float[Tensor, "batch head q"]
    energy: Float[Tensor, "batch head q"] | None
    mixed: list[Float[Tensor, "batch head q feature"]]

    @classmethod
    def nothing(cls, q: Tensor, widths: Sequence[int], *, energy: bool) -> "Merged":
        """Rows that have seen no key."""
        wide = torch.promote_types(q.dtype, torch.float32)
        rows = q.new_full(q.shape[:3], float("-inf"), dtype=wide)
        mixed = [rows.new_zeros(*q.shape[:3], width) for width in widths]
        return cls(rows, torch.zeros_like(rows) if energy else None, mixed)

    @property
    def entropy(self) -> Float[Tensor, "batch head q"]:
        """Entropy in nats; 0 for a row that saw nothing.

        Raises:
            ValueError: Expected scores were not asked for.
        """
        if self.energy is None:
            raise ValueError("the entropy needs the expected score: ask for energy=True")
        found = self.log_sum_exp - self.energy
        return found.masked_fill(self.log_sum_exp == float("-inf"), 0.0).clamp(min=0.0)


def merge(found: Merged, rows: slice, part: Fused) -> None:
    """Take in what some rows saw in further keys; a part that saw nothing changes nothing."""
    old = found.log_sum_exp[:, :, rows]
    both = torch.logaddexp(old, part.log_sum_exp)
    share = (part.log_sum_exp - both.masked_fill(both == float("-inf"), 0.0)).exp()
    found.log_sum_exp[:, :, rows] = both
    if found.energy is not None and part.energy is not None:
        found.energy[:, :, rows] += share * (part.energy - found.energy[:, :, rows])
    for whole, mixed in zip(found.mixed, part.mixed, strict=True):
        whole[:, :, rows] += share[..., None] * (mixed - whole[:, :, rows])
