"""The demo's runs, trained once for all tests that look at them."""

import fcntl
from pathlib import Path

from interp.training.recipes import induction, majority


def trained_demo(folder: Path) -> Path:
    """A folder with `demo` and `demo-majority`; whoever comes second, waits for the first."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        induction().train(folder / "demo", resume=True, progress=False)
        majority().train(folder / "demo-majority", resume=True, progress=False)
    return folder
