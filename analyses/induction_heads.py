"""Which heads of a trained model do induction, and what do they stand on?

Question: Which heads attend to what followed the last occurrence of a token, by content and not
    by distance; does the model need them; and which earlier heads do they need?
Method: `probes.find_induction_heads` at periods that training withheld, each head against its own
    control; the group cut at z (mean ablation) together, each, in order and all but each; then
    earlier heads cut one after the other, each time the one that lowers the group's score most,
    until nine tenths of what all of them are worth are gone. These are chosen by that effect, not
    by their own previous-token score.
Finding: In the demo's model (two layers, seeds 0 to 4) all four heads of the second layer are
    induction heads: the best scores 0.90 to 0.95 at every withheld period, controls stay below
    0.05. They back each other up: cutting any one costs at most 0.023 nats, all four 6.0 to 6.3
    (accuracy on repeats from 0.9996 or more to 0.020 or less), and no single one is enough (0.45
    to 2.1 nats when it alone is kept). They stand on two or three heads of the first layer, with
    previous-token scores of 0.27 to 0.63: with these cut the group's score falls from 0.89-0.93
    to 0.06-0.12. Where three share the work, none takes more than 0.4 off it alone.
Run: python analyses/induction_heads.py OUT --run runs/demo
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from interp import plots
from interp.report import induction_of, subject_of
from interp.report.figures import group_figure
from interp.results import plain, write_atomic


def main(
    out: Annotated[Path, typer.Argument(file_okay=False)], run: Path = Path("runs/demo")
) -> None:
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
        "circuit": about.circuit,
    }
    figure = plots.head_heatmap(evidence.score.mean(-1), name="induction score")
    if about.loss is not None:
        figure = group_figure(about.loss)
    write_atomic(out / "induction_heads.json", json.dumps(plain(numbers), indent=1) + "\n")
    write_atomic(out / "induction_heads.html", plots.to_html(figure))


if __name__ == "__main__":
    typer.run(main)
