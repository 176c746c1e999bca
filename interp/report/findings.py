"""What is found out about a model: every number of a report."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch

from interp.ablation import Group, HeadSweep, group, reference_mean, sweep
from interp.circuits import InductionCircuit, induction_circuit
from interp.dynamics import Formation, Trajectory
from interp.probes import (
    HeadStatistics,
    InductionHeads,
    find_induction_heads,
    head_statistics,
    least_keys,
)
from interp.report.formation import formation_of, trajectory_of
from interp.report.interactions import Interactions, interactions_of
from interp.report.subject import Subject

Progress = Callable[[int, int], None]
Found = TypeVar("Found")
PARTS = 8
SEQUENCES = 8  # a period, for the circuit


@dataclass(frozen=True)
class Induction:
    """Whether the model does induction, by which heads, and what it costs to lose them.

    Attributes:
        found: The heads, and the evidence on all of them.
        loss: What cutting the group does to the loss on repeats; None without a group.
        accuracy: Likewise to the accuracy.
        circuit: The earlier heads that the group stands on, and the edges between; None without a
            group.
    """

    found: InductionHeads
    loss: Group | None
    accuracy: Group | None
    circuit: InductionCircuit | None


@dataclass(frozen=True)
class Findings:
    """All that a report says.

    Attributes:
        subject: The model, and what it was shown.
        statistics: Of all heads on held-out sequences of the task.
        cut: What cutting each head alone costs there (its mean at each position in its place).
        flattened: What it costs to make its pattern uniform.
        pairs: What cutting two heads costs beyond both alone; None of a model with one head.
        induction: None where the model has no room for repeats.
        formation: When the induction heads formed; None if they did not, or nobody looked.
        trajectory: Each head's scores over the checkpoints; None where there are too few.
    """

    subject: Subject
    statistics: HeadStatistics
    cut: HeadSweep
    flattened: HeadSweep
    pairs: Interactions | None
    induction: Induction | None
    formation: Formation | None
    trajectory: Trajectory | None

    def to_dict(self) -> dict[str, Any]:
        """Every number, ready for JSON."""
        found: dict[str, Any] = {
            "statistics": self.statistics.to_dict(),
            "cut": self.cut.to_dict(),
            "flattened": self.flattened.to_dict(),
            "pairs": None if self.pairs is None else self.pairs.to_dict(),
            "formation": None if self.formation is None else asdict(self.formation),
            "trajectory": None if self.trajectory is None else self.trajectory.to_dict(),
            "induction": None,
        }
        if self.induction is not None:
            about = self.induction
            parts = {"loss": about.loss, "accuracy": about.accuracy, "circuit": about.circuit}
            found["induction"] = {
                "heads": [list(head) for head in about.found],
                "positional": [list(head) for head in about.found.positional],
                "anti": [list(head) for head in about.found.anti],
                "evidence": about.found.evidence.to_dict(),
                **{name: None if x is None else x.to_dict() for name, x in parts.items()},
            }
        return found


@torch.no_grad()
def findings_of(subject: Subject, *, progress: Progress | None = None) -> Findings:
    """Look at a model.

    Args:
        subject: The model, and what it is shown.
        progress: Called with how many parts are done, and out of how many.

    Raises:
        ValueError: The model has layers without attention that could be looked at.
    """
    done = _Counted(progress)
    model, batch = subject.model, subject.batch
    min_keys = least_keys(batch.mask)
    statistics = done(head_statistics(model, batch.tokens, mask=batch.mask, min_keys=min_keys))
    cut = done(_head_sweep(subject, kind="mean", reference=subject.reference))
    flattened = done(_head_sweep(subject, kind="uniform"))
    induction = None if subject.repeats is None else induction_of(subject, progress=done)
    pairs = done(interactions_of(subject, cut, named=_named(induction)))
    trajectory = done(trajectory_of(subject))
    done.all()
    return Findings(
        subject=subject,
        statistics=statistics,
        cut=cut,
        flattened=flattened,
        pairs=pairs,
        induction=induction,
        formation=formation_of(subject.metrics),
        trajectory=trajectory,
    )


def _named(induction: Induction | None) -> list[tuple[int, int]]:
    """The circuit's heads."""
    if induction is None or induction.circuit is None:
        return []
    return [*induction.circuit.source_heads, *induction.found]


def _head_sweep(subject: Subject, **how: Any) -> HeadSweep:
    found = sweep(subject.model, subject.batch, **how)
    assert isinstance(found, HeadSweep)  # as at any site that has heads
    return found


def induction_of(subject: Subject, *, progress: "_Counted | None" = None) -> Induction:
    """Look for induction heads, and cut them: together, each, in order, all but each."""
    done = progress or _Counted(None)
    model = subject.model
    found = done(find_induction_heads(model, periods=subject.periods))
    if not found:
        return Induction(found, None, None, None)
    assert subject.repeats is not None
    means = reference_mean(model, subject.repeats_reference)
    how: dict[str, Any] = {"heads": list(found), "kind": "mean", "reference": means}
    loss = group(model, subject.repeats, metric="loss", **how)
    accuracy = done(group(model, subject.repeats, metric="accuracy", **how))
    circuit = induction_circuit(model, periods=subject.periods, n_sequences=SEQUENCES, found=found)
    return Induction(found, loss, accuracy, done(circuit))


class _Counted:
    """Counts parts as their results come by."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.done = progress, 0

    def __call__(self, result: Found) -> Found:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, PARTS)
        return result

    def all(self) -> None:
        """No more are to come, though a model without induction heads has fewer."""
        if self.progress is not None:
            self.progress(PARTS, PARTS)
