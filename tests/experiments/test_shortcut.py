"""Shortcut or induction: what is trained on, and what one and many distances teach."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import shortcut

    return shortcut


def test_fewer_periods_are_part_of_more_and_none_is_withheld(script):
    for seed in range(3):
        sets = [set(script.periods_of(n, seed)) for n in script.NUMBERS]
        assert [len(periods) for periods in sets] == list(script.NUMBERS)
        for fewer, more in zip(sets, sets[1:], strict=False):
            assert fewer < more
        assert script.REFERENCE in sets[0]
        assert not sets[-1] & set(script.WITHHELD)


def test_a_task_has_just_the_periods_that_are_named(script):
    assert script.task_of((9, 16, 21)).config.periods("train") == [9, 16, 21]
    batch = script.task_of((16,)).batch(8, torch.Generator().manual_seed(0), split="held_out")
    asked = batch.targets >= 0
    back = torch.arange(script.LENGTH)[None] - (16 - 1)
    said = batch.tokens.gather(1, back.clamp(min=0).expand_as(batch.tokens))
    assert (said == batch.targets)[asked].all()  # looking 15 back is always right


def test_accuracy_of_a_look_back_is_1_at_its_period_and_0_elsewhere(script):
    def looks_15_back(tokens):
        logits = torch.nn.functional.one_hot(tokens, script.VOCAB + 1).float()
        return logits.roll(15, 1)

    assert script.accuracy_at(looks_15_back, 16) == 1
    assert script.accuracy_at(looks_15_back, 18) < 0.05


def test_one_distance_teaches_a_shortcut(script, tmp_path):
    script.main(tmp_path, quick=True)
    found = json.loads((tmp_path / "shortcut.json").read_text())
    one = found["numbers"]["models"]["1"][0]
    assert one["trained"] > 0.9
    assert one["withheld"] < 0.2
    assert one["look_back"] > 0.5
    assert found["comparisons"][0]["verdict"] == "reproduced"
    assert "How many distances" in (tmp_path / "shortcut.html").read_text()
