"""When the heads formed, as training's own measurements tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.results import Result

LEAST = 0.4  # a final score below this is no formation
BEGUN, HALF, DONE = 0.2, 0.5, 0.8


@dataclass(frozen=True)
class Formation(Result):
    """The best induction score over training, and where it rose.

    Attributes:
        best: Maximum over all heads at each evaluation.
        steps: Of the evaluations.
        begun: First step at a fifth of the final score.
        half: First step at half of it.
        done: First step at four fifths of it.
    """

    axes: ClassVar = {"best": ("step",), "steps": ("step",)}
    coordinates: ClassVar = {"step": "steps"}
    best: Float[Tensor, "step"]
    steps: Int[Tensor, "step"]
    begun: int
    half: int
    done: int


def formation_of(metrics: Sequence[dict[str, Any]]) -> Formation | None:
    """Where the best induction score rose; None if it never did, or was not measured."""
    rows = [row for row in metrics if row.get("max_induction")]
    if not rows:
        return None
    known = [[s for s in row["max_induction"] if s is not None] for row in rows]
    best = torch.tensor([max(scores, default=float("nan")) for scores in known])
    if not bool(best[-1] >= LEAST):
        return None
    steps = torch.tensor([row["step"] for row in rows])
    reached = [int(steps[best >= share * best[-1]][0]) for share in (BEGUN, HALF, DONE)]
    return Formation(best, steps, *reached)
