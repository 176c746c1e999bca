"""The notebooks run, and their figures need no network."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "analyses" / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:.*Proactor.*", "ignore::DeprecationWarning:.*zmq.*")
def test_notebook_runs_without_a_network(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    figures = 0
    for cell in book.cells:
        assert all(output.output_type != "error" for output in cell.get("outputs", []))
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            figures += "application/vnd.plotly.v1+json" in shown
            assert "cdn.plot.ly" not in shown.get("text/html", "").split("<script")[0]
    assert figures >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path):
    book = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells)
