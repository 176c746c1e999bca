"""Dispersion: the bound is attained, the last row is the model's, and weight fades with length."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)


@pytest.mark.parametrize("n", [2, 16, 4096])
@pytest.mark.parametrize("spread", [0.0, 3.0, 20.0])
def test_the_bound_is_attained_by_one_score_over_equal_ones(scripts, n, spread):
    from largest.reading import bound

    scores = torch.zeros(n, dtype=torch.float64)
    scores[0] = spread
    most = bound(torch.tensor(spread, dtype=torch.float64), n)
    assert float(scores.softmax(0).max()) == pytest.approx(float(most), rel=1e-6)
    scores[1] = spread / 2  # another one above the rest takes from the largest
    assert n == 2 or spread == 0 or float(scores.softmax(0).max()) < float(most)


def test_the_winner_is_above_all_others_and_is_asked_for(scripts, generator):
    from largest.reading import CLASSES, drawn

    batch = drawn(20, 50, generator)
    levels = batch.tokens[:, :-1] // CLASSES
    top = levels.sort(-1, descending=True).values
    assert (top[:, 0] > top[:, 1]).all()
    winner = batch.tokens.gather(1, levels.argmax(-1, keepdim=True))[:, 0]
    assert torch.equal(batch.targets[:, -1], winner % CLASSES)


@pytest.mark.parametrize("cap", [None, 0.5])
def test_the_last_row_is_the_models(scripts, cap):
    from largest.reading import ASK, LastRow, drawn

    import interp

    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 16, "d_vocab": ASK + 1, "n_ctx": 40}
    model = interp.Transformer(
        interp.TransformerConfig(**sizes, positional="none", score_soft_cap=cap)
    )
    tokens = drawn(30, 5, torch.Generator().manual_seed(0)).tokens
    kernel = LastRow()
    with torch.no_grad():
        last = model(tokens, kernel=kernel)[:, -1]
        logits, cache = model.run_with_cache(tokens)
    assert torch.allclose(last, logits[:, -1], atol=1e-6)
    row = cache["pattern", 0][:, 0, -1]
    entropy = -(row * row.log()).sum(-1)
    assert torch.allclose(kernel.found["max_weight"][0], row.amax(-1), atol=1e-6)
    assert torch.allclose(kernel.found["entropy"][0], entropy, atol=1e-5)
    spread = row.log().amax(-1) - row.log().amin(-1)
    assert torch.allclose(kernel.found["spread"][0], spread, atol=1e-4)


def test_weight_fades_with_length_under_the_bound(scripts, tmp_path):
    import dispersion

    dispersion.main(tmp_path, quick=True)
    numbers = json.loads((tmp_path / "dispersion.json").read_text())["numbers"]
    run, capped = numbers["free"]["plain"][0], numbers["capped"]["plain"][0]
    first, last = run["16"], run["512"]
    assert last["max_weight"] < first["max_weight"] / 2
    assert last["normalized_entropy"] > first["normalized_entropy"] + 0.1
    assert last["right"] < first["right"] - 0.2
    assert all(line["over_the_bound"] <= 1e-5 for line in (*run.values(), *capped.values()))
    assert capped["512"]["largest_spread"] <= 6
    assert capped["512"]["bound"] < 0.5
    assert "stay sharp" in (tmp_path / "dispersion.html").read_text()
