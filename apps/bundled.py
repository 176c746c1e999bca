"""The trained models that ship, and how they were made: `python -m apps.bundled`.

The project's own recipes train them; of the checkpoints, about a dozen are kept, most of them
where the loss falls fastest, weights only.
"""

import json
import shutil
import tempfile
from pathlib import Path

from apps.sources import BUNDLED
from interp.checkpoint import CONFIG
from interp.results import write_atomic
from interp.runs import METRICS, Run, checkpoint_path
from interp.training import recipes

RECIPES = {"induction": recipes.induction, "majority": recipes.majority}
KEPT = 14


def chosen_steps(run: Run, count: int = KEPT) -> list[int]:
    """The first and last checkpoint, and those between which the loss falls by equal shares.

    Half of a step's weight is how far the held-out loss fell to it, half its place among the
    checkpoints, which are spaced evenly in the logarithm of the step.
    """
    losses = {line["step"]: line["held_out_loss"] for line in run.metrics}
    steps = [step for step in run.steps if step in losses]
    falls = [0.0] + [
        max(0.0, losses[a] - losses[b]) for a, b in zip(steps, steps[1:], strict=False)
    ]
    total = sum(falls) or 1.0
    place, kept = 0.0, [steps[0]]
    for fall, step in zip(falls[1:], steps[1:], strict=True):
        place += 0.5 * fall / total + 0.5 / (len(steps) - 1)
        if place >= len(kept) / (count - 1) - 1e-9:
            kept.append(step)
    return sorted({*kept, steps[-1]})


def bundle(run: Run, folder: Path) -> Path:
    """Copy a run's config, metrics and chosen weights."""
    shutil.rmtree(folder, ignore_errors=True)
    for step in chosen_steps(run):
        target = checkpoint_path(folder, step)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint_path(run.path, step), target)
    described = run.described
    described.get("versions", {}).pop("machine", None)
    write_atomic(folder / CONFIG, json.dumps(described, indent=1) + "\n")
    shutil.copyfile(run.path / METRICS, folder / METRICS)
    return folder


def main() -> None:
    """Train both and put them where the dashboard looks."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, recipe in RECIPES.items():
            bundle(recipe().train(Path(scratch, name)), BUNDLED / name)


if __name__ == "__main__":
    main()
