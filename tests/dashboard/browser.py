"""A real server and a real browser, for tests and for the pictures in docs."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interp.cli.dashboard import command_line

QUIET = '[data-testid="stApp"][data-test-script-state="notRunning"]'
DRAWN = """() => !document.querySelector('[data-testid=stSkeleton]') &&
  [...document.querySelectorAll('[data-testid=stPlotlyChart]')]
    .every((chart) => chart.querySelector('.main-svg'))"""
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def chromium() -> str | None:
    """Where the browser is."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(runs: Sequence[Path] = (), *, folder: Path | None = None) -> Iterator[str]:
    """The dashboard on a port of its own; its address."""
    port = free_port()
    root = Path(__file__).parents[2]
    script = root / "apps" / "dashboard.py"
    command = command_line(list(runs), script=script, port=port, browser=False)
    environment = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen(
        command, cwd=folder or root, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/_stcore/health", process)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url: str, process: subprocess.Popen, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"no server at {url}; it ended with {process.poll()}")


@contextmanager
def browsing(**context: Any) -> Iterator[Any]:
    """A page of a fresh browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        opened = browser.new_context(**context)
        try:
            yield opened.new_page()
        finally:
            browser.close()


def settled(page: Any, seconds: float = 90) -> None:
    """Wait until the script has run and the charts are drawn."""
    for _ in range(2):  # a click may start a second run a moment later
        page.wait_for_timeout(300)
        page.wait_for_selector(QUIET, timeout=seconds * 1000)
    page.wait_for_function(DRAWN, timeout=seconds * 1000)
    page.wait_for_timeout(400)
