"""Sinks by need: the task's solutions by hand, and what training finds."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)


def by_hand(kind, query, key):
    """A head that copies contents to the output, with scores set between marks."""
    from sinks.averaging import CONTENT, model_of

    model = model_of(kind, 0)
    attention, marks = model.blocks[0].attn, 2 * CONTENT
    for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
        weight.zero_()
    for (mark, place), value in query.items():
        attention.W_Q[0, marks + mark, place] = value / model.config.scale
    for (mark, place), value in key.items():
        attention.W_K[0, marks + mark, place] = value
    attention.W_V[0, :CONTENT, :CONTENT] = torch.eye(CONTENT)
    attention.W_O[0, :CONTENT, CONTENT:marks] = torch.eye(CONTENT)
    return model


def seen(model, hooks):
    from sinks.averaging import CONTENT, TRIGGER, _error, drawn_batch

    from interp import probes

    tokens, wanted = drawn_batch(model.W_E[:, :CONTENT], 64, torch.Generator().manual_seed(1))
    rows = (tokens == TRIGGER).cumsum(1) == 0
    rows[:, 0] = False
    sink = probes.head_statistics(model, tokens, rows=rows, hooks=hooks).sink
    with torch.no_grad():
        return _error(model, tokens, wanted, hooks), float(sink)


def test_a_softmax_head_by_hand_solves_it_by_a_sink(scripts):
    from sinks.kinds import Kind

    # Marks: 0 BOS, 1 trigger, 2 others. Triggers look at others, others at BOS.
    model = by_hand(Kind(), {(1, 2): 40.0, (2, 0): 40.0}, {(0, 0): 1.0, (2, 2): 1.0})
    error, sink = seen(model, ())
    assert error == pytest.approx(0, abs=1e-6)
    assert sink == pytest.approx(1, abs=1e-6)


def test_a_relu_head_by_hand_solves_it_without_a_sink(scripts):
    from sinks.kinds import Kind

    # Mark 3 is 1 / count: the weight of each other token, unless the row is one of them.
    kind = Kind(rectified=True)
    model = by_hand(kind, {(3, 2): 1.0, (2, 2): -2.0}, {(2, 2): 1.0})
    error, sink = seen(model, kind.hooks())
    assert error == pytest.approx(0, abs=1e-6)
    assert sink == 0


def test_without_a_place_to_park_a_softmax_head_fails(scripts):
    from sinks.averaging import measured
    from sinks.kinds import KINDS

    assert measured(KINDS["softmax, first key hidden"], 0, 200).error > 0.5
    found = measured(KINDS["softmax"], 0, 200)
    assert found.error < 0.05
    assert found.sink > 0.9
    assert found.sink_at_trigger < 0.05
    assert found.error_cut > 0.5


def test_the_script_writes_numbers_and_a_page(scripts, tmp_path):
    import sinks_by_need

    sinks_by_need.main(tmp_path, quick=True)
    kept = json.loads((tmp_path / "sinks_by_need.json").read_text())
    assert len(kept["numbers"]["kinds"]) == 8
    relu = kept["numbers"]["kinds"]["ReLU"][0]
    assert relu["sink"] < 0.02
    assert relu["error_cut"] == pytest.approx(relu["error"], rel=0.2)
    assert "need an attention sink" in (tmp_path / "sinks_by_need.html").read_text()
