"""Do training's own measurements say when induction heads form, as dense checkpoints do?

Question: `interp analyze` reads the step of formation from metrics.jsonl: from the best induction
    score at the steps where training measured itself. Does it agree with scores of every head
    over many more checkpoints, and how much does it differ between seeds?
Method: The demo's model (two layers of four heads, 600 steps on repeats), seeds 0 to 4. Each is
    trained once, with 16 checkpoints an octave; its metrics are thinned to the steps at which the
    plain recipe measures (evaluation changes nothing in training, so they are the plain run's).
    Dense: induction scores of all heads on 48 sequences a checkpoint, against 12 in the metrics.
    The step is where the best score passes half the way from its floor to its ceiling.
Finding: They agree in five of five seeds, by 0.8 % or less: steps 205, 225, 211, 194 and 211 by the
    metrics, 205, 225, 212, 193 and 212 by 74 checkpoints from step 40 on. Over seeds the step is
    209 (95 % interval of the mean 195 to 223; by checkpoints 210, 195 to 224). All four heads of
    the second layer form, within 11 steps of each other, and none of the first. What the two
    differ by is far less than how long a formation takes: from a tenth to nine tenths of the way
    are 75 to 119 steps by the metrics.
Run: python analyses/formation_step.py OUT [--quick]
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from interp import plots
from interp.dynamics import Formation, across_seeds, formation, over_checkpoints
from interp.report import formation_of
from interp.results import plain, write_atomic
from interp.runs import Run
from interp.training import TrainingOptions
from interp.training.recipes import induction

DENSE = {"quick": 12, "full": 16}  # checkpoints an octave
FIRST = 40  # nothing forms before
AGREES = 0.1


@dataclass(frozen=True)
class Found:
    """One seed's run.

    Attributes:
        seed: Of weights and data.
        metrics: Formation of the best head, from what training measured.
        dense: The same from all checkpoints.
        heads: The step of each head that rose, from all checkpoints.
        n_metrics: Measurements.
        n_dense: Checkpoints.
        steps: The checkpoints.
        best: The best score at each.
    """

    seed: int
    metrics: Formation
    dense: Formation
    heads: dict[str, float]
    n_metrics: int
    n_dense: int
    steps: Sequence[int]
    best: Tensor

    @property
    def difference(self) -> float:
        """The metrics' step against the dense one, as a share of it."""
        assert self.metrics.step is not None
        assert self.dense.step is not None
        return self.metrics.step / self.dense.step - 1


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write formation_step.json and formation_step.html to a folder, with the runs beside."""
    found = [followed(trained(out, seed, quick=quick), seed) for seed in range(1 if quick else 5)]
    seeds = [_row(each) for each in found]
    kept = {
        "agree": sum(abs(each.difference) <= AGREES for each in found),
        "of": len(found),
        "across_seeds": {
            "metrics": asdict(across_seeds([each.metrics for each in found])),
            "dense": asdict(across_seeds([each.dense for each in found])),
        },
        "seeds": seeds,
    }
    write_atomic(out / "formation_step.json", json.dumps(plain(kept), indent=1) + "\n")
    lines = {f"seed {each.seed}": each.best for each in found}
    figure = plots.scores_by_step(found[0].steps, lines, name="best induction score")
    write_atomic(out / "formation_step.html", plots.to_html(figure))
    for row in seeds:
        print(row)


def trained(out: Path, seed: int, *, quick: bool) -> Run:
    """The demo's run of a seed, with more checkpoints; gone on with if it is there."""
    return induction().train(
        out / f"seed-{seed}",
        seed=seed,
        resume=True,
        checkpoints_per_octave=DENSE["quick" if quick else "full"],
        evaluation_size=32,
        progress=False,
        device="cpu",
    )


def followed(run: Run, seed: int) -> Found:
    """Where the best head forms by a run's metrics, and by all its checkpoints."""
    plain_steps = set(TrainingOptions.of(induction().options).evaluation_steps())
    metrics = [line for line in run.metrics if line["step"] in plain_steps]
    steps = [step for step in run.steps if step == 0 or step >= FIRST]
    any_tokens = run.task.batch(1, torch.Generator().manual_seed(0)).tokens  # it draws its own
    scores = over_checkpoints(run, any_tokens, statistics=["induction"], steps=steps)
    assert scores.induction is not None
    by_head = scores.induction.flatten(1)
    first = formation_of(metrics)
    assert first is not None
    return Found(
        seed=seed,
        metrics=first,
        dense=formation(steps, by_head.amax(1)),
        heads=_heads(steps, scores.induction),
        n_metrics=len(metrics),
        n_dense=len(steps),
        steps=steps,
        best=by_head.amax(1),
    )


def _heads(steps: Sequence[int], scores: Tensor) -> dict[str, float]:
    """By name, for heads whose score rose."""
    found = {}
    for layer in range(scores.shape[1]):
        for head in range(scores.shape[2]):
            step = formation(steps, scores[:, layer, head]).step
            if step is not None:
                found[f"L{layer}H{head}"] = round(step, 1)
    return found


def _row(found: Found) -> dict[str, Any]:
    return {
        "seed": found.seed,
        "metrics": asdict(found.metrics),
        "dense": asdict(found.dense),
        "difference": found.difference,
        "agrees": abs(found.difference) <= AGREES,
        "heads": found.heads,
        "measurements": found.n_metrics,
        "checkpoints": found.n_dense,
    }


if __name__ == "__main__":
    typer.run(main)
