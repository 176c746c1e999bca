"""The table that an experiment ends with, and its files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ANALYSES = Path(__file__).parents[1] / "analyses"


@pytest.fixture
def published(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import published

    return published


def test_what_differs_and_what_came_out_are_kept_and_escaped(published, tmp_path, capsys):
    from plotly import graph_objects as go

    row = published.Comparison("steps", "1 < 2", "3", published.verdict(False, partly=True), "few")
    published.write(
        tmp_path,
        "phase_change",
        [row],
        source="Olsson et al. 2022",
        numbers={"steps": [1.0, float("nan")]},
        figure=go.Figure(go.Scatter(x=[0, 1], y=[1, 2])),
        departures=["one layer"],
    )
    kept = json.loads((tmp_path / "phase_change.json").read_text())
    assert kept["comparisons"][0]["verdict"] == "in part"
    assert kept["departures"] == ["one layer"]
    page = (tmp_path / "phase_change.html").read_text()
    assert "1 &lt; 2" in page
    assert "<li>one layer</li>" in page
    assert "◐ steps" in capsys.readouterr().out


def test_part_of_a_finding_does_not_weaken_a_whole_one(published):
    assert published.verdict(True, partly=True) == "reproduced"
    assert published.verdict(False) == "not reproduced"


def test_a_file_where_a_folder_is_wanted_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("mine")
    command = [sys.executable, str(ANALYSES / "dispersion.py"), str(tmp_path / "file"), "--quick"]
    root = {**os.environ, "PYTHONPATH": str(ANALYSES.parent)}
    said = subprocess.run(command, capture_output=True, text=True, env=root, check=False)
    assert said.returncode == 2
    assert "Invalid value" in said.stderr
    assert "Traceback" not in said.stderr
    for script in ANALYSES.glob("*.py"):  # the others say the same by their declaration
        assert "def main(out: Path" not in script.read_text(), script
