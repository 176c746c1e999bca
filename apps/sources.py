"""What can be looked at: the runs that ship, those that were named, those in ./runs."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interp
from interp import interop
from interp.checkpoint import CONFIG
from interp.runs import CHECKPOINTS, NEWEST, Run, checkpoint_path, checkpoint_steps
from interp.tasks import Task

BUNDLED = Path(__file__).parent / "models"
OWN_RUNS = Path("runs")
READABLE = (ValueError, OSError, KeyError, TypeError)  # what a folder that can't be read raises


class UnreadableError(Exception):
    """A folder or a prompt that can't be shown; the message is one sentence for the reader."""


@dataclass(frozen=True)
class Opened:
    """A model, and what is known of it.

    Attributes:
        name: What the page calls it.
        path: Where it is.
        step: Of a run, which checkpoint; None for a single model.
        model: The model, which nobody edits: sessions share it.
        task: What it was trained on, if that is known.
        key: Differs whenever the weights do.
    """

    name: str
    path: Path
    step: int | None
    model: Any
    task: Task | None
    key: str


def found_sources(named: Iterable[str]) -> dict[str, Path]:
    """Folders and files by the name that the page gives them; the first ones named come first."""
    folders = [folder for path in named for folder in _runs_in(Path(path))]
    bundled = sorted(path.parent for path in BUNDLED.glob(f"*/{CONFIG}"))
    own = _runs_in(OWN_RUNS) if OWN_RUNS.is_dir() else []
    found: dict[str, Path] = {}
    for folder in [*folders, *bundled, *own]:
        if folder.resolve() not in (path.resolve() for path in found.values()):
            found[_free_name(folder, found)] = folder
    return found


def _runs_in(path: Path) -> list[Path]:
    """The folder itself, or the runs in it if it is a folder of runs."""
    if not path.is_dir() or (path / CONFIG).exists():
        return [path]
    inside = sorted(config.parent for config in path.glob(f"*/{CONFIG}"))
    return inside or ([path] if path != OWN_RUNS else [])


def _free_name(folder: Path, taken: Mapping[str, Path]) -> str:
    name = folder.resolve().name or "model"
    number, free = 2, name
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free


def steps_of(path: Path) -> list[int]:
    """The checkpoints of a run, in order; none for a single model."""
    return checkpoint_steps(path) if (path / CHECKPOINTS).is_dir() else []


def signature(path: Path, step: int | None) -> str:
    """What changes when the weights do: place, step, and when the file was written."""
    files = [path] if path.is_file() else sorted(path.glob("*.*"))
    if step is not None:
        files = [checkpoint_path(path, step)]
    elif (path / CHECKPOINTS / NEWEST).is_file():
        files.append(path / CHECKPOINTS / NEWEST)
    times = [file.stat().st_mtime_ns for file in files if file.is_file()]
    return f"{path.resolve()}@{step}@{max(times, default=0)}"


def signature_of_all(path: Path, steps: Iterable[int]) -> str:
    """What changes when one of a run's checkpoints does, and not when a run goes on."""
    files = [path / CONFIG, *(checkpoint_path(path, step) for step in steps)]
    times = [file.stat().st_mtime_ns if file.is_file() else 0 for file in files]
    return f"{path.resolve()}@{times}"


def open_source(name: str, path: Path, step: int | None, key: str) -> Opened:
    """Read a model.

    Raises:
        UnreadableError: There is nothing there yet, it is broken, or of a kind that is not known.
    """
    try:
        return Opened(name, path, step, _model(path, step), _task(path), key)
    except READABLE as error:
        said = " ".join(str(error).split())
        raise UnreadableError(f"{name} can't be opened: {said}") from error


@dataclass(frozen=True)
class Loading:
    """A call that opens a model: its function, under the name that it has in Python, and how."""

    name: str
    function: Callable[..., Any]
    path: Path
    options: dict[str, Any]

    def __call__(self) -> Any:
        """The model."""
        return self.function(self.path, **self.options)

    def __str__(self) -> str:
        """The call as a line of Python."""
        given = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in self.options.items()
            if value is not None
        }
        words = [f"{name}={value!r}" for name, value in given.items()]
        return f"{self.name}({', '.join([repr(str(self.path)), *words])})"


def opening(path: Path, step: int | None) -> str:
    """The line of Python that opens a model."""
    return str(_loading(path, step))


def _model(path: Path, step: int | None) -> Any:
    """The model of a file or folder."""
    return _loading(path, step)()


def _loading(path: Path, step: int | None) -> Loading:
    """How a file or folder is opened, by what it holds."""
    described = _described(path)
    if isinstance(described.get("model"), dict) or (path.is_dir() and not described):
        return Loading("interp.load", interp.load, path, {"step": step})
    if path.suffix == ".pt" or (path / "model.pt").is_file():
        file, options = path if path.is_file() else path / "model.pt", {"config": described or None}
        return Loading("interp.load_transformer_lens", interp.load_transformer_lens, file, options)
    if path.suffix == ".bin":
        options = {"tokenizer": next(path.parent.glob("tok*.bin"), None)}
        return Loading("interp.interop.load_llama2c", interop.load_llama2c, path, options)
    if (path / "params.npz").is_file():
        file, options = path / "params.npz", {"config": path / CONFIG}
        return Loading("interp.interop.load_tracr", interop.load_tracr, file, options)
    if "model_type" in described or "architectures" in described:
        return Loading("interp.load_hugging_face", interp.load_hugging_face, path, {})
    raise ValueError(
        f"{path} is of no kind that is known: a run, a folder of interp.save, a folder of "
        "Hugging Face, a checkpoint of TransformerLens (.pt), of llama2.c (.bin), or of tracr"
    )


def _described(path: Path) -> dict[str, Any]:
    config = path / CONFIG
    if path.is_file() or not config.is_file():
        return {}
    described = json.loads(config.read_text())
    return described if isinstance(described, dict) else {}


def _task(path: Path) -> Task | None:
    """The task of a run; None where no file tells."""
    described = _described(path)
    if not isinstance(described.get("task"), dict) or "options" not in described["task"]:
        return None
    if not isinstance(described.get("training"), dict):
        return interp.tasks.make(described["task"]["name"], **described["task"]["options"])
    return Run(path).task
