"""Induction on text: what is counted, by hand, and the whole of it at the smallest size."""

import json
from pathlib import Path

import pytest
import torch

from interp.tasks.batch import next_token_batch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import text_induction

    return text_induction


def test_ranks_agree_or_are_opposite(script):
    assert script.rank_correlation([0.1, 0.5, 0.3], [1.0, 30.0, 2.0]) == pytest.approx(1)
    assert script.rank_correlation([0.1, 0.5, 0.3], [9.0, 1.0, 2.0]) == pytest.approx(-1)


def test_heads_that_match_come_strongest_first_and_there_is_always_one(script):
    assert script.matched(torch.tensor([[0.1, 0.3], [0.9, 0.0]])) == [(1, 0), (0, 1)]
    assert script.matched(torch.tensor([[0.1, 0.05]])) == [(0, 0)]


def test_only_what_is_named_is_asked(script):
    batch = next_token_batch(torch.tensor([[4, 5, 6, 7]]))
    where = torch.tensor([[False, True, False, False]])
    assert script.only(batch, where).targets.tolist() == [[-100, 6, -100, -100]]


def test_the_parts_of_the_text_add_up_to_all_of_it(script, tmp_path):
    script.main(tmp_path, quick=True)
    models = json.loads((tmp_path / "text_induction.json").read_text())["numbers"]["models"]
    assert [len(found["heads"]) for found in models.values()] == [4, 2]
    for found in models.values():
        share = found["share"]
        assert 0 < share < 0.5
        parts = zip(found["on_foretold"], found["on_others"], found["on_text"], strict=True)
        for told, others, whole in parts:
            assert share * told + (1 - share) * others == pytest.approx(whole, abs=1e-4)
    assert "real text" in (tmp_path / "text_induction.html").read_text()
