"""Training started from the page: a process of its own, which outlives page changes and reruns."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apps.sources import OWN_RUNS

COMMAND = "import sys; from interp.cli import run; sys.exit(run(sys.argv[1:]))"


@dataclass
class Job:
    """A run that was started here."""

    folder: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        """Whether it still trains."""
        return self.process.poll() is None

    @property
    def complaint(self) -> str:
        """Why it ended, if not well and not by being stopped: the last line that it wrote."""
        code = self.process.poll()
        if code is None or code == 0 or code >= 128 or code < 0:
            return ""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"training ended with exit code {code}"

    def stop(self) -> None:
        """Ask it to save and end."""
        if self.running:
            self.process.terminate()


@dataclass
class Jobs:
    """The runs that were started since the server began."""

    by_folder: dict[Path, Job] = field(default_factory=dict)

    def start(self, name: str, settings: Mapping[str, str]) -> Job:
        """Train in ./runs/NAME.

        Raises:
            ValueError: The name is none for a folder, or is taken.
        """
        if not name or Path(name).name != name or name.startswith("."):
            raise ValueError(f"“{name}” is no name for a folder: use letters, digits, - and _")
        folder = (OWN_RUNS / name).resolve()
        if folder.exists():
            raise ValueError(f"there is a run {name} already: choose another name")
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(f".{name}.log")
        options = [part for option, value in settings.items() for part in (option, value)]
        command = [sys.executable, "-c", COMMAND, "train", "--out", str(folder), *options]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--no-progress"], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        job = Job(folder, process, log)
        self.by_folder[folder] = job
        return job

    def latest(self) -> Job | None:
        """The run that was started last."""
        return next(reversed(self.by_folder.values()), None)
