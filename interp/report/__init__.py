"""What `interp analyze` finds out about a run, says and writes.

found = report.analyze("runs/demo")      # every number, and the model they are of
print(report.verdict(found))             # in sentences
report.write(found, "runs/demo/report")  # index.html, report.json
"""

import json
from dataclasses import asdict
from pathlib import Path

from interp.checkpoint import CONFIG
from interp.report.claims import claims_of
from interp.report.findings import Findings, Induction, Progress, findings_of, induction_of
from interp.report.foreign import subject_of_file
from interp.report.formation import formation_of, trajectory_of
from interp.report.interactions import Interactions, interactions_of
from interp.report.roles import Role, roles_of
from interp.report.subject import Subject, subject_of
from interp.report.table import head_table
from interp.report.words import verdict
from interp.results import plain, write_atomic

__all__ = [
    "Findings",
    "Induction",
    "Interactions",
    "Role",
    "Subject",
    "analyze",
    "findings_of",
    "formation_of",
    "head_table",
    "induction_of",
    "interactions_of",
    "roles_of",
    "subject_at",
    "subject_of",
    "subject_of_file",
    "trajectory_of",
    "verdict",
    "write",
]


def analyze(
    run: str | Path, *, step: int | None = None, progress: Progress | None = None
) -> Findings:
    """Find out which heads of a model do what, and what happens without them.

    Args:
        run: A run folder, or any model that `interp.interop.open_model` opens.
        step: Of a checkpoint. None: the newest model.
        progress: Called with how many parts are done, and out of how many.

    Raises:
        FileNotFoundError: There is no such folder or checkpoint.
        ValueError: It is no run and no model; its task is not one of `interp.tasks`; or there
            are layers without softmax.
    """
    return findings_of(subject_at(run, step=step), progress=progress)


def subject_at(path: str | Path, *, step: int | None = None) -> Subject:
    """A run's model with sequences of its task, or anybody's model with sequences of its own.

    Raises:
        FileNotFoundError: There is no such folder, file or checkpoint.
        ValueError: It is neither; or a step is asked of what is no run.
    """
    if not Path(path).exists() or _is_run(Path(path)):
        return subject_of(path, step=step)
    if step is not None:
        raise ValueError(f"{path} is a model, not a run, so it has no steps: leave step out")
    return subject_of_file(path)


def _is_run(path: Path) -> bool:
    if not (path / CONFIG).is_file():
        return not any(path.glob("*.*")) if path.is_dir() else False  # nothing to open either
    said = json.loads((path / CONFIG).read_text())
    return isinstance(said, dict) and "training" in said


def write(findings: Findings, folder: str | Path) -> Path:
    """Write index.html (self-contained) and report.json, and return the page's path."""
    from interp.report.page import page
    from interp.report.said import said_of

    folder = Path(folder)
    numbers = {
        "verdict": verdict(findings),
        "run": findings.subject.name,
        "step": findings.subject.step,
        **findings.to_dict(),
        "said": [asdict(said) for said in said_of(findings)],
        "claims": [asdict(subject) for subject in claims_of(findings.subject.folder)],
        "config": findings.subject.described,
    }
    write_atomic(folder / "report.json", json.dumps(plain(numbers), indent=1) + "\n")
    return write_atomic(folder / "index.html", page(findings))
