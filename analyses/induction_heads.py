"""Which heads of a trained model do induction, and what do they stand on?

Question: Which heads attend to what followed the last occurrence of a token, by content and not
    by distance; does the model need them; and which earlier heads do they need?
Method: `probes.find_induction_heads` at periods that training withheld, each head against its own
    control; the group cut at z (mean ablation) together, each, in order and all but each; then
    earlier heads cut, alone and together, until the group's score falls below half. These are
    chosen by that effect, not by their own previous-token score.
Finding: In the demo's model (two layers, seeds 0 to 4) all four heads of the second layer are
    induction heads, FINDING
Run: python analyses/induction_heads.py OUT --run runs/demo
"""

import json
from pathlib import Path

import typer

from interp import plots
from interp.report import induction_of, subject_of
from interp.report.figures import group_figure
from interp.results import plain, write_atomic


def main(out: Path, run: Path = Path("runs/demo")) -> None:
    """Write induction_heads.json and induction_heads.html to a folder."""
    subject = subject_of(run)
    if subject.repeats is None:
        raise ValueError(f"{run}: the model has no room for repeats, where induction is looked for")
    about = induction_of(subject)
    evidence = about.found.evidence
    numbers = {
        "run": run,
        "step": subject.step,
        "periods": subject.periods,
        "withheld": subject.withheld,
        "heads": list(about.found),
        "score": evidence.score.mean(-1),
        "control": evidence.control.mean(-1),
        "copying": evidence.copying,
        "loss": about.loss,
        "accuracy": about.accuracy,
        "carriers": about.carriers,
    }
    figure = plots.head_heatmap(evidence.score.mean(-1), name="induction score")
    if about.loss is not None:
        figure = group_figure(about.loss)
    write_atomic(out / "induction_heads.json", json.dumps(plain(numbers), indent=1) + "\n")
    write_atomic(out / "induction_heads.html", plots.to_html(figure))


if __name__ == "__main__":
    typer.run(main)
