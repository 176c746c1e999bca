"""Clock and pizza: the quick form, and what its table says of numbers by hand."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from interp.circuits import fourier

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import clock_and_pizza

    return clock_and_pizza


def test_uniform_attention_is_the_more_symmetric_in_the_quick_form(script, tmp_path):
    script.main(tmp_path, quick=True)
    kept = json.loads((tmp_path / "clock_and_pizza.json").read_text())["numbers"]
    uniform, free = kept["uniform"][0], kept["free"][0]
    assert 1 > uniform["symmetricity"] > free["symmetricity"]
    assert min(uniform["accuracy"], free["accuracy"]) > 0.4  # 0.8 of the pairs are trained on
    assert (tmp_path / "clock_and_pizza.html").stat().st_size > 1000


def test_each_kind_is_told_by_both_measures(script):
    pizza = {"accuracy": 1.0, "symmetricity": 0.99, "irrelevance": 0.2}
    clock = {"accuracy": 1.0, "symmetricity": 0.3, "irrelevance": 0.9}
    rows = script.compared([pizza, pizza], [clock, clock])
    assert {row.verdict for row in rows} == {"reproduced"}
    rows = script.compared([pizza, clock], [clock, clock])
    assert [row.verdict for row in rows] == [
        "reproduced",
        "in part",
        "reproduced",
        "not reproduced",
    ]
    assert {row.verdict for row in script.compared([clock], [pizza])[1:]} == {"not reproduced"}


def test_right_logits_are_by_distance_and_sum(script):
    n = torch.arange(5)
    logits = F.one_hot(fourier.sums(5), 5) * (10.0 * n[:, None, None] + n[:, None])
    table = script.right_logits(logits)
    assert table[(4 - 1) % 5, (4 + 1) % 5] == 41
    assert table[(1 - 4) % 5, (1 + 4) % 5] == 14


def test_pairs_without_the_sign_are_asked_at_b(script):
    from interp.tasks.modular_addition import ModularAddition

    batch = script.FullBatch(ModularAddition(p=7), signed=False)(1, None)
    assert batch.tokens.shape == (14, 2)  # 30 % of 49
    assert torch.equal(batch.targets[:, 1], batch.tokens.sum(1) % 7)
    assert (batch.targets[:, 0] < 0).all()
