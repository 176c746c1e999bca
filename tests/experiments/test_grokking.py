"""Grokking: its phases by hand, and the circuit that grows before the test loss falls."""

import json
from pathlib import Path

import pytest

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import grokking

    return grokking


def test_the_quick_form_grows_a_circuit_while_the_test_loss_is_high(script, tmp_path):
    script.main(tmp_path, quick=True)
    run = json.loads((tmp_path / "grokking.json").read_text())["numbers"]["runs"][0]
    assert run["memorised"] is not None
    assert run["test"][-1] > 2.6 > 10 * run["train"][-1]  # ln 13 = 2.56
    assert run["restricted"][-1] < 1 < 2.5 < run["restricted"][0]
    assert 0 < len(run["keys"]) <= 6
    assert (tmp_path / "grokking.html").stat().st_size > 1000


def test_phases_by_hand(script):
    steps = [0, 10, 20, 30, 40, 50]
    curves = {"train": [4, 1, 0.01, 0, 0, 0], "test": [4.0, 8, 9, 5, 4, 0.02]}
    assert script.phases(steps, curves, p=53) == {
        "memorised": 20,
        "clean_up_from": 30,
        "clean_up_to": 50,
    }
    never = script.phases(steps, {"train": [4] * 6, "test": [4, 5, 6, 7, 8, 9]}, p=53)
    assert set(never.values()) == {None}


def test_a_run_that_never_groks_is_said_not_to(script):
    run = {"memorised": 20, "clean_up_from": None, "clean_up_to": None}
    rows = script.compared([run], script.Size())
    assert [row.verdict for row in rows] == ["not reproduced"]


def test_every_training_pair_is_in_every_batch(script):
    from modular import FullBatch, trained_pairs

    from interp.tasks.modular_addition import ModularAddition

    task = ModularAddition(p=7, fraction=0.5)
    batch = FullBatch(task)(1, None)
    assert len(batch) == 24 == int(trained_pairs(task).sum())
