"""The stages of Markov chains: what they are measured by, and the first of them."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import markov_stages

    return markov_stages


def test_the_quick_form_leaves_uniform_for_unigram(script, tmp_path):
    script.main(tmp_path, quick=True)
    kept = json.loads((tmp_path / "markov_stages.json").read_text())
    best, run = kept["numbers"]["best_loss"], kept["numbers"]["runs"]["markov"][0]
    for order, published in script.PUBLISHED.items():
        assert best[order] == pytest.approx(published, abs=3 * 0.17 / 400**0.5)
    assert run["stages"][0] == "uniform"
    assert run["kl_unigram"][-1] < run["kl_uniform"][-1] / 2
    assert run["kl_unigram"][-1] < run["kl_bigram"][-1]
    assert (tmp_path / "markov_stages.html").stat().st_size > 1000


def test_a_stage_starts_where_its_way_stays_the_nearest(script):
    steps = [0, 10, 20, 30, 40]
    curves = {
        "kl_uniform": [0, 1, 2, 2, 2],
        "kl_unigram": [1, 0, 1, 0, 1],
        "kl_bigram": [2, 2, 0, 1, 0],
        "previous_token": [0.0, 0.0, 0.1, 0.8, 0.8],
    }
    found = script.summary(steps, curves)
    assert found["stages"] == ["uniform", "unigram", "bigram", "unigram", "bigram"]
    assert (found["unigram_from"], found["bigram_from"]) == (10, 40)
    assert (found["head_from"], found["head_to"]) == (10, 30)
    assert script.summary(steps[:4], {k: v[:4] for k, v in curves.items()})["bigram_from"] is None


def test_doubly_stochastic_chains_say_nothing_by_their_states(script, generator):
    batch = script.doubly_stochastic(500, generator)
    shares = torch.bincount(batch.tokens.flatten()) / batch.tokens.numel()
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.01)
    best = {order: script.best_loss(batch, order) for order in script.ORDERS}
    assert best["unigram"] > best["uniform"]
    assert best["bigram"] < best["uniform"] - 0.05


def test_what_is_linear_in_frequencies_comes_near_whatever_states_are_called(script, generator):
    from dataclasses import replace

    batch = script.tasks.make("markov", vocab=3, length=101).batch(200, generator)
    limit = script.linear_limit(batch)
    assert 0.01 < limit < 0.05  # unigram counts are 0.12 away
    names = torch.tensor([2, 0, 1])
    named = replace(
        batch,
        tokens=names[batch.tokens],
        targets=torch.where(batch.targets < 0, batch.targets, names[batch.targets.clamp(min=0)]),
    )
    assert script.linear_limit(named) == pytest.approx(limit, abs=1e-5)
