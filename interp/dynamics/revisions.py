"""Checkpoints that somebody else saved, as a run: folders, or revisions of a model on the hub."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from interp.interop import load_hugging_face
from interp.model import Transformer


class Revisions:
    """Hugging Face checkpoints at steps, for `over_checkpoints`.

        Revisions(["out/checkpoint-500", "out/checkpoint-1000"])
        Revisions([f"EleutherAI/pythia-70m@step{n}" for n in (0, 512, 143000)], path="pythia")

    Results are kept in `revisions-HASH/` (of the list): beside the first folder, so in the folder
    that holds the checkpoints, or in `path`.

    Attributes:
        path: Where results are kept.
        sources: Folder or NAME@REVISION by step.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        steps: Sequence[int] | None = None,
        path: str | Path | None = None,
    ) -> None:
        """Name the checkpoints; nothing is loaded yet.

        Args:
            sources: Folders that transformers saved, or NAME@REVISION of the hub.
            steps: Their steps. None: the numbers that they end in.
            path: In which folder results are kept. None: in the one that holds the first.

        Raises:
            FileNotFoundError: There is no such folder.
            ValueError: There is none; one is a file, or has no step, or two have the same; or
                models of the hub have no `path`.
        """
        for source in sources:
            _check_source(source, local=path is None)
        given = [_step_of(source) for source in sources] if steps is None else list(steps)
        if not sources or len(given) != len(sources) or len(set(given)) != len(given):
            raise ValueError(
                f"wanted a step of its own for each of {len(sources)} sources, got {given}"
            )
        self.sources = {step: str(source) for step, source in zip(given, sources, strict=True)}
        if path is None and not Path(sources[0]).is_dir():
            raise ValueError(f"{sources[0]} is no folder: say with path= where results are kept")
        # Another list in the same place may have other models at these steps.
        about = hashlib.sha256(repr(sorted(self.sources.items())).encode()).hexdigest()[:8]
        beside = Path(sources[0]).resolve().parent if path is None else Path(path)
        self.path = beside / f"revisions-{about}"

    @property
    def steps(self) -> list[int]:
        """The steps, in order."""
        return sorted(self.sources)

    def load(self, step: int) -> Transformer:
        """The model at a step, as `interp.load_hugging_face` gives it.

        Raises:
            FileNotFoundError: There is no such folder, or the hub is out of reach.
            ValueError: A family or field is not supported.
        """
        source = self.sources[step]
        if Path(source).is_dir():
            return load_hugging_face(source).eval()
        name, _, revision = source.partition("@")
        return load_hugging_face(name, revision=revision or None).eval()

    def version(self, step: int) -> str:
        """What changes when a step's folder is written again; revisions of the hub stay as is."""
        folder = Path(self.sources[step])
        return version_of(sorted(folder.iterdir())) if folder.is_dir() else ""


def version_of(files: Sequence[Path]) -> str:
    """The names, sizes and times of files: enough to notice that one was written again."""
    seen = [(file.name, file.stat()) for file in files if file.is_file()]
    return repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in seen])


def _check_source(source: str | Path, *, local: bool) -> None:
    at = Path(source)
    if at.is_file():
        raise ValueError(f"{source} is a file: wanted a folder that transformers saved")
    hub = isinstance(source, str) and ("@" in source or not local)
    if not hub and not at.is_dir():
        raise FileNotFoundError(
            f"{source}: there is no such folder (a model of the hub is NAME@REVISION, with path=)"
        )


def _step_of(source: str | Path) -> int:
    found = re.search(r"(\d+)$", str(source))
    if found is None:
        raise ValueError(f"{str(source)!r} ends in no step: give steps=")
    return int(found[1])
