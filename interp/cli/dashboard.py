"""`interp dashboard`: the views in a browser."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

# Nothing leaves the machine, and no question is asked at the first start.
QUIET = {
    "browser.gatherUsageStats": "false",
    "server.showEmailPrompt": "false",
    "server.fileWatcherType": "none",
    "client.toolbarMode": "viewer",
}

MODELS = (".safetensors", ".pt", ".pth", ".bin", ".npz")
"""Endings of the files that `interp.interop.open_model` reads."""


def open_dashboard(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs, folders of runs, or models.")
    ] = None,
    port: Annotated[int, typer.Option(help="Where it listens, on this machine only.")] = 8501,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Look at runs in the browser; Ctrl-C ends it."""
    for run in runs or []:
        if not run.exists():
            raise FileNotFoundError(f"there is no folder or file {run}")
        if run.is_file() and run.suffix not in MODELS:
            raise ValueError(
                f"wanted runs, folders of runs or models ({', '.join(MODELS)}), got the file {run}"
            )
    command = command_line(runs or [], script=pages(), port=port, browser=browser)
    if os.name == "posix":  # this process becomes the server: whoever ends it ends that
        os.execv(command[0], command)
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def pages() -> Path:
    """The script that streamlit runs, as installed.

    Raises:
        FileNotFoundError: Streamlit, or the pages, are not installed.
    """
    if find_spec("streamlit") is None:
        raise FileNotFoundError(
            'the dashboard needs streamlit, which is not installed: pip install "interp[dashboard]"'
        )
    apps = find_spec("apps")
    places = list(apps.submodule_search_locations or []) if apps is not None else []
    script = Path(places[0], "dashboard.py") if places else None
    if script is None or not script.is_file():
        raise FileNotFoundError("the dashboard's pages (apps/dashboard.py) are not installed")
    return script


def command_line(runs: list[Path], *, script: Path, port: int, browser: bool) -> list[str]:
    """What starts streamlit on the pages."""
    flags = QUIET | {
        "server.address": "127.0.0.1",
        "server.port": str(port),
        "server.headless": "false" if browser else "true",
    }
    options = [f"--{name}={value}" for name, value in flags.items()]
    start = [sys.executable, "-m", "apps.serve", "run", str(script)]
    return [*start, *options, "--", *(str(run.resolve()) for run in runs)]
