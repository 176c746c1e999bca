"""Runs as folders: what training wrote, read back, also while it is still writing.

A run is `config.json` (model, task, training, versions), `checkpoints/step-*.safetensors` (weights
only), `checkpoints/newest.safetensors` (weights, and the state of the optimiser and the
generators), `metrics.jsonl` (a line an evaluation) and `report/`.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from interp.checkpoint import (
    CONFIG,
    WEIGHTS,
    decoder_only,
    fill,
    load_model,
    read_config,
    read_weights,
)
from interp.model import Transformer
from interp.paths import path_of
from interp.tasks import Task, make

CHECKPOINTS = "checkpoints"
NEWEST = "newest.safetensors"
METRICS = "metrics.jsonl"
MODEL_PREFIX = "model."  # of the weights in `NEWEST`, beside the state of the optimiser


def load(folder: str | Path, *, step: int | None = None) -> Transformer:
    """The model of a folder, in eval mode on the CPU.

    Args:
        folder: What `save` wrote, or a run.
        step: Of a run, which checkpoint. None: the newest.

    Raises:
        FileNotFoundError: There is no such folder, or no checkpoint at that step.
        TypeError: The step is no integer.
        ValueError: A file is broken, or weights do not fit the config.
    """
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise TypeError(f"a step is an integer (`run.steps` has them), got {step!r}")
    folder = path_of(folder, "a folder")
    config = decoder_only(read_config(folder)["model"], folder)
    if (folder / WEIGHTS).is_file():
        if step is not None:
            raise ValueError(f"{folder} holds a single model, not a run: leave `step` out")
        return load_model(config, folder / WEIGHTS)
    steps, newest = checkpoint_steps(folder), folder / CHECKPOINTS / NEWEST
    if step is None and newest.is_file() and stored_step(newest) >= max(steps, default=-1):
        model = Transformer(config)
        fill(model, model_weights(read_weights(newest)), str(newest))
        return model.eval()
    if not steps:
        raise FileNotFoundError(f"{folder} holds neither a model nor a checkpoint yet")
    wanted = steps[-1] if step is None else step
    if wanted not in steps:
        near = sorted(steps, key=lambda s: abs(s - wanted))[:3]
        raise FileNotFoundError(
            f"{folder} has no checkpoint at step {wanted}; the nearest are "
            f"{', '.join(map(str, sorted(near)))}"
        )
    return load_model(config, checkpoint_path(folder, wanted))


class Run:
    """A run folder, read as it is asked: it may still be written to.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: str | Path, model: Transformer | None = None) -> None:
        """Open a run.

        Args:
            path: The folder that `interp.train` wrote, or is writing.
            model: Its model, if it is at hand. None: loaded when asked for.

        Raises:
            FileNotFoundError: There is no such folder.
            ValueError: It is no run.
        """
        self.path = path_of(path, "a run folder")
        if not isinstance(read_config(self.path).get("training"), dict):
            raise ValueError(f"{path} holds a model, not a run: there is no 'training' in {CONFIG}")
        if model is not None:
            self.model = model

    @cached_property
    def model(self) -> Transformer:
        """The newest model."""
        return load(self.path)

    def load(self, step: int) -> Transformer:
        """The model at a checkpoint."""
        return load(self.path, step=step)

    @property
    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order."""
        return checkpoint_steps(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A dict an evaluation, in order: see `read_metrics`."""
        return read_metrics(self.path)

    @property
    def described(self) -> dict[str, Any]:
        """What config.json says: model, task, training, versions."""
        return read_config(self.path)

    @property
    def finished(self) -> bool:
        """Whether every step has been made."""
        steps = self.steps
        return bool(steps) and steps[-1] >= self.described["training"]["steps"]

    @property
    def task(self) -> Task:
        """The task that it was trained on.

        Raises:
            ValueError: It was trained on a function of the caller's own, which no file can hold.
        """
        described = self.described.get("task") or {}
        if "options" not in described:
            raise ValueError(
                f"{self.path} was trained on {described.get('name', 'an unnamed task')}, which is "
                "not one of interp.tasks.TASKS: give tokens instead"
            )
        return make(described["name"], **described["options"])

    def __repr__(self) -> str:
        steps, of = self.steps, self.described["training"]["steps"]
        return f"Run({str(self.path)!r}): step {steps[-1] if steps else 0} of {of}"


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Where the weights of a step are."""
    return Path(folder) / CHECKPOINTS / f"step-{step:08d}.safetensors"


def checkpoint_steps(folder: str | Path) -> list[int]:
    """The steps of which a run keeps the weights, in order."""
    found = (Path(folder) / CHECKPOINTS).glob("step-*.safetensors")
    return sorted(int(path.stem.removeprefix("step-")) for path in found)


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """A run's measurements, an evaluation each; a line that is still being written is left out.

    Keys: `step`, `tokens`, `seconds`, `learning_rate`, `train_loss`, `train_accuracy` (over the
    steps since the last evaluation; None at first), `held_out_loss`, `held_out_accuracy` (None
    without a held-out split); losses in nats a scored target; `in_context_score`, the held-out loss
    late in sequences less that early (see `interp.dynamics`). `max_induction`,
    `max_previous_token`, `max_duplicate_token`, `max_sink`, `max_normalized_entropy`: for each
    layer the maximum over its heads.

    Raises:
        ValueError: A line is broken.
    """
    path = Path(folder) / METRICS
    if not path.is_file():
        return []
    lines = path.read_text().split("\n")[:-1]  # what follows the last newline is not whole yet
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: a line is not JSON ({error}); the file is broken") from error


def stored_step(path: Path) -> int:
    """The step at which a state was written.

    Raises:
        ValueError: The file is broken.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return int((file.metadata() or {})["step"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path}: not a whole state of a run ({error})") from error


def model_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The model's part of what `checkpoints/newest.safetensors` holds."""
    return {
        name.removeprefix(MODEL_PREFIX): x
        for name, x in state.items()
        if name.startswith(MODEL_PREFIX)
    }
