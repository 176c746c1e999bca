"""How the heads came to be: scores over the checkpoints of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apps.answers.heads import batch_for, column, statistics_of
from apps.sources import Opened
from interp import dynamics
from interp.runs import Run, read_metrics

SAMPLES = 16  # sequences that scores are averaged over, at each checkpoint
FOLLOWED = (
    "induction", "previous_token", "duplicate_token", "sink", "normalized_entropy", "write_norm",
)  # fmt: skip


@dataclass(frozen=True)
class Growth:
    """Scores of all heads at each checkpoint.

    Attributes:
        steps: The checkpoints.
        scores: [S L H] by the name of the score.
    """

    steps: list[int]
    scores: dict[str, np.ndarray]

    def best(self, metric: str) -> dict[str, np.ndarray]:
        """The highest score of each layer [S], by the layer's name."""
        values = self.scores[metric]
        return {f"best of L{n}": values[:, n].max(-1) for n in range(values.shape[1])}

    def window(self, metric: str) -> tuple[float, float] | None:
        """The steps between which the head that ends highest rose; None if it did not."""
        values = np.nan_to_num(self.scores[metric].reshape(len(self.steps), -1))
        if len(self.steps) < 3:
            return None
        formed = dynamics.formation(self.steps, values[:, values[-1].argmax()].tolist())
        return (formed.low, formed.high) if formed.low is not None and formed.high else None


def growth(opened: Opened, steps: tuple[int, ...]) -> Growth:
    """Scores of all heads at each of these checkpoints, over held-out samples."""
    batch, run = batch_for(opened, None)[:SAMPLES], Run(opened.path)
    found = [statistics_of(run.load(step), batch) for step in steps]
    scores = {metric: np.stack([column(each, metric) for each in found]) for metric in FOLLOWED}
    return Growth(list(steps), scores)


def metrics_of(path: Path) -> list[dict[str, Any]]:
    """What a run has measured so far."""
    return read_metrics(path)
