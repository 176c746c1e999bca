"""Associative recall: softmax against linear attention, at the smallest size."""

import json
from pathlib import Path

import pytest

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import associative_recall

    return associative_recall


def test_softmax_recalls_before_linear_attention_does(script, tmp_path):
    script.main(tmp_path, quick=True)
    kept = json.loads((tmp_path / "associative_recall.json").read_text())["numbers"]
    assert kept["causal"][0]["accuracy"] > 0.8
    assert kept["linear"][0]["accuracy"] < kept["causal"][0]["accuracy"] - 0.2
    assert (tmp_path / "associative_recall.html").stat().st_size > 1000


def runs(*accuracies):
    grid = [(width, pairs) for width in (16, 32) for pairs in (4, 8)]
    return [
        {"width": width, "pairs": pairs, "accuracy": accuracy}
        for (width, pairs), accuracy in zip(grid, accuracies, strict=True)
    ]


def test_the_table_follows_from_the_grid(script):
    linear = runs(0.95, 0.5, 1.0, 0.95)
    assert [script.least_width(linear, pairs) for pairs in (4, 8)] == [16, 32]
    rows = script.compared(runs(1, 1, 1, 1), linear)
    assert {row.verdict for row in rows} == {"reproduced"}
    rows = script.compared(runs(1, 0.5, 0.5, 0.5), runs(0.5, 0.5, 0.5, 0.5))
    assert {row.verdict for row in rows} == {"not reproduced"}
