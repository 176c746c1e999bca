"""The run folder while it is written: one writer, one config, nothing half done."""

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from interp.checkpoint import CONFIG, read_config, write_weights
from interp.config import TransformerConfig
from interp.results import plain, write_atomic
from interp.runs import CHECKPOINTS, METRICS, NEWEST, checkpoint_path, read_metrics
from interp.tasks import TASKS, make
from interp.training.options import TrainingOptions
from interp.training.trainer import Trainer

LOCK = ".lock"
COMPARED = ("model", "task", "training")


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Be the only one that writes to a folder; given up when the block, or the process, ends.

    Raises:
        FileExistsError: Another process writes to it.
    """
    import fcntl  # not on Windows, where interp is to import all the same

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(
                f"{folder} is in use: another process is training there; choose another folder"
            ) from error
        yield


def open_folder(folder: Path, described: Mapping[str, Any], *, resume: bool) -> bool:
    """Make a folder this run's, and say whether there is something to go on with.

    Raises:
        FileExistsError: It holds a run or a model, and `resume` was not asked for.
        ValueError: What it holds was made with other settings; the first one is named.
    """
    if not (folder / CONFIG).exists():
        written = {**described, "versions": versions()}
        write_atomic(folder / CONFIG, json.dumps(plain(written), indent=1) + "\n")
        return False
    if not resume:
        raise FileExistsError(
            f"{folder} is in use: it holds a run or a model; choose another folder, or go on with "
            "it (resume=True, --resume)"
        )
    there, here = completed(read_config(folder)), completed(described)
    for part in COMPARED:
        if difference := _difference(part, there.get(part), here[part]):
            raise ValueError(
                f"{folder} was begun with {difference}: use the same, or another folder"
            )
    return (folder / CHECKPOINTS / NEWEST).is_file()


def completed(described: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON holds them; what an older version did not know yet has its default.

    Raises:
        ValueError: A setting that this version doesn't know.
    """
    model = TransformerConfig.from_dict(described["model"]).to_dict()
    training = TrainingOptions.of(described.get("training", {})).to_dict()
    task = dict(described.get("task", {}))
    if "options" in task and task["name"] in TASKS:
        task["options"] = make(task["name"], **task["options"]).options
    return json.loads(json.dumps(plain({"model": model, "task": task, "training": training})))


def _difference(name: str, there: Any, here: Any) -> str | None:
    """The first entry in which two settings differ, in words."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted({*there, *here}):
            if found := _difference(f"{name}.{key}", there.get(key), here.get(key)):
                return found
        return None
    return None if there == here else f"{name} = {there!r}, not {here!r}"


def versions() -> dict[str, str]:
    """What a run was made with."""
    try:
        own = version("interp")
    except PackageNotFoundError:  # run from a checkout that is not installed
        own = "checkout"
    return {
        "interp": own,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def save_checkpoint(folder: Path, trainer: Trainer) -> None:
    """Keep the weights of this step."""
    write_weights(trainer.plain, checkpoint_path(folder, trainer.step))


def save_state(folder: Path, trainer: Trainer) -> None:
    """Keep all that is needed to go on from this step, in place of what was kept before."""
    from safetensors.torch import save as to_bytes

    state = to_bytes(trainer.state(), metadata=trainer.about())
    write_atomic(folder / CHECKPOINTS / NEWEST, state)


def restore_state(folder: Path, trainer: Trainer) -> None:
    """Put a trainer where the folder's run stopped.

    Raises:
        ValueError: The file is broken.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / CHECKPOINTS / NEWEST
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole state of a run ({error})") from error
    trainer.restore(state, about)


def keep_metrics(folder: Path, *, until: int) -> None:
    """Forget measurements that were made after a step."""
    kept = [line for line in read_metrics(folder) if line["step"] <= until]
    write_atomic(folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept))


def append_metrics(folder: Path, line: Mapping[str, Any]) -> None:
    """Add an evaluation to metrics.jsonl, at once."""
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(plain(line)) + "\n")
