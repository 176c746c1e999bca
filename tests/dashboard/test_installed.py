"""The command and the wheel: what starts, what it leaves, what it brings along."""

import os
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from apps.sources import BUNDLED
from tests.dashboard.browser import free_port

ROOT = Path(__file__).parents[2]


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2):
            return True
    except OSError:
        return False


@pytest.mark.skipif(os.name != "posix", reason="the command stays the server's parent elsewhere")
def test_the_server_ends_with_the_command(tmp_path: Path):
    port = free_port()
    command = [sys.executable, "-m", "interp", "dashboard", "--no-browser", "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 90
    while not answers(port) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    assert answers(port)
    process.terminate()
    process.wait(20)
    assert not answers(port)


def test_the_wheel_brings_pages_theme_and_trained_models(tmp_path: Path):
    builder = pytest.importorskip("hatchling.builders.wheel", reason="it builds the wheel")
    (wheel,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wanted = [
        "apps/.streamlit/config.toml",  # the theme; no statistics gathered
        *(f"apps/views/{path.name}" for path in (ROOT / "apps" / "views").glob("*.py")),
        *(
            f"apps/models/{path.relative_to(BUNDLED).as_posix()}"
            for path in BUNDLED.rglob("*")
            if path.is_file()
        ),
    ]
    assert len(wanted) > 30
    assert [name for name in wanted if name not in names] == []
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"apps", "interp"}
    assert Path(wheel).stat().st_size < 5_000_000
