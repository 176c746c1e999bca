"""What `interp analyze` finds out about a run, says and writes.

found = report.analyze("runs/demo")      # every number, and the model they are of
print(report.verdict(found))             # in sentences
report.write(found, "runs/demo/report")  # index.html, report.json
"""

import json
from pathlib import Path

from interp.report.carriers import Carriers, carriers_of
from interp.report.findings import Findings, Induction, Progress, findings_of, induction_of
from interp.report.formation import formation_of, trajectory_of
from interp.report.roles import Role, roles_of
from interp.report.subject import Subject, subject_of
from interp.report.table import head_table
from interp.report.words import verdict
from interp.results import plain, write_atomic

__all__ = [
    "Carriers",
    "Findings",
    "Induction",
    "Role",
    "Subject",
    "analyze",
    "carriers_of",
    "findings_of",
    "formation_of",
    "head_table",
    "induction_of",
    "roles_of",
    "subject_of",
    "trajectory_of",
    "verdict",
    "write",
]


def analyze(
    run: str | Path, *, step: int | None = None, progress: Progress | None = None
) -> Findings:
    """Find out which heads of a run's model do what, and what happens without them.

    Args:
        run: The run folder.
        step: Of a checkpoint. None: the newest model.
        progress: Called with how many parts are done, and out of how many.

    Raises:
        FileNotFoundError: There is no such folder or checkpoint.
        ValueError: It is no run; its task is not one of `interp.tasks`; or there are layers
            without softmax.
    """
    return findings_of(subject_of(run, step=step), progress=progress)


def write(findings: Findings, folder: str | Path) -> Path:
    """Write index.html (self-contained) and report.json, and return the page's path."""
    from interp.report.page import page

    folder = Path(folder)
    numbers = {
        "verdict": verdict(findings),
        "run": findings.subject.name,
        "step": findings.subject.step,
        **findings.to_dict(),
        "config": findings.subject.described,
    }
    write_atomic(folder / "report.json", json.dumps(plain(numbers), indent=1) + "\n")
    return write_atomic(folder / "index.html", page(findings))
