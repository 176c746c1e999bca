"""What experiments on modular addition share: what is trained on and how, and the phases of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.tasks import Batch, every_pair
from interp.tasks.modular_addition import ModularAddition

LEARNT = 0.01  # of ln p: the loss at which pairs count as known
PUBLISHED: dict[str, Any] = {
    "learning_rate": 1e-3,
    "betas": (0.9, 0.98),
    "warmup_steps": 10,
    "schedule": "constant",
    "clip_norm": None,
}
"""How Nanda et al. 2023 and Zhong et al. 2023 train, but for decay and the loss's precision."""


@dataclass(frozen=True)
class FullBatch:
    """Every training pair at every step, whatever batch size is asked for.

    Attributes:
        task: Whose pairs.
        signed: Whether "=" comes after them; without it the answer is asked for at b.
    """

    task: ModularAddition
    signed: bool = True

    def __call__(self, n: int, generator: torch.Generator) -> Batch:
        """The pairs, always the same."""
        batch = every_pair(self.task, split="train")
        if self.signed:
            return batch
        return Batch(batch.tokens[:, :2], batch.mask[:, :2], batch.targets[:, 1:])


def trained_pairs(task: ModularAddition) -> Bool[Tensor, "a b"]:
    """Which pairs are trained on."""
    pairs = every_pair(task, split="train").tokens
    found = torch.zeros(task.p, task.p, dtype=torch.bool)
    found[pairs[:, 0], pairs[:, 1]] = True
    return found


def phases(
    steps: Sequence[int], curves: dict[str, list[float]], *, p: int
) -> dict[str, int | None]:
    """The steps at which memorisation ends, clean-up starts, and clean-up ends; None: never."""
    low, peak = LEARNT * math.log(p), max(curves["test"])
    high = [at for at, loss in enumerate(curves["test"]) if loss > peak / 2]
    falls = high[-1] < len(steps) - 1
    return {
        "memorised": _first_under(steps, curves["train"], low),
        "clean_up_from": steps[high[-1]] if falls else None,
        "clean_up_to": _first_under(steps, curves["test"], low),
    }


def _first_under(steps: Sequence[int], losses: Sequence[float], level: float) -> int | None:
    return next((step for step, loss in zip(steps, losses, strict=True) if loss < level), None)
