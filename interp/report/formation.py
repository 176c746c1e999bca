"""When the heads formed: from training's own measurements, and head by head from checkpoints."""

from collections.abc import Sequence
from typing import Any

from interp.dynamics import Formation, Trajectory, formation, over_checkpoints
from interp.report.subject import Subject

LEAST = 0.4  # a final induction score below this is no formation
MOST_CHECKPOINTS = 32
SEQUENCES = 16


def formation_of(metrics: Sequence[dict[str, Any]]) -> Formation | None:
    """Where the best induction score rose; None if it never did, or was not measured enough."""
    rows = [row for row in metrics if row.get("max_induction")]
    known = [[s for s in row["max_induction"] if s is not None] for row in rows]
    best = [max(scores, default=float("nan")) for scores in known]
    if len(best) < 3 or not best[-1] >= LEAST:
        return None
    found = formation([row["step"] for row in rows], best)
    return found if found.step is not None else None


def trajectory_of(subject: Subject) -> Trajectory | None:
    """Each head's induction and previous-token score over some of the checkpoints.

    None where there are fewer than three. Results are kept in the run folder.
    """
    steps = [] if subject.run is None else subject.run.steps
    if subject.run is None or len(steps) < 3:
        return None
    every = -(-len(steps) // MOST_CHECKPOINTS)
    batch = subject.batch[:SEQUENCES]
    asked = ["previous_token"] if subject.repeats is None else ["induction", "previous_token"]
    return over_checkpoints(
        subject.run,
        batch.tokens,
        mask=batch.mask,
        statistics=asked,
        steps=sorted({*steps[::every], steps[-1]}),
    )
