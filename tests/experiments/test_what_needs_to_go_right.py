"""Held parts: what is held acts, and a given match is copied from long before anything else."""

import json
from pathlib import Path

import pytest

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)


def lines(steps, accuracy):
    return [{"step": s, "held_out_accuracy": a} for s, a in zip(steps, accuracy, strict=True)]


def test_half_of_the_way_is_found_on_a_line_between_measurements(scripts):
    from what_needs_to_go_right import _half_way

    steps = range(0, 100, 10)
    rises = lines(steps, [0, 0, 0, 0.25, 0.75, 1, 1, 1, 1, 1])
    assert _half_way(rises) == pytest.approx(35)
    assert _half_way(lines(steps, [0.05] * 10)) == float("inf")


def test_heads_that_add_up_are_told_from_one_that_does_all(scripts):
    from what_needs_to_go_right import _additive

    def found(by_count, single_cuts):
        left = {n: [loss] for n, loss in enumerate(by_count)}
        return [{"loss": 0.0, "layer 1": {**left, 3: single_cuts}}]

    assert _additive(found([4, 2, 1], [0.1] * 4), 1, "heads").verdict == "reproduced"
    assert _additive(found([4, 3, 2], [4, 0, 0, 0]), 1, "heads").verdict == "in part"
    worse = found([4, 5, 2], [1.0] * 4)
    assert _additive(worse, 1, "heads").verdict == "not reproduced"


def test_a_given_match_is_copied_from_at_once(scripts, tmp_path):
    import what_needs_to_go_right as script

    script.main(tmp_path, quick=True)
    kept = json.loads((tmp_path / "what_needs_to_go_right.json").read_text())
    runs = kept["numbers"]["runs"].items()
    ends = {name: each[0]["held_out_loss"][-1] for name, each in runs}
    given = ends.pop("match given")
    assert all(given < end - 0.5 for end in ends.values())
    kept_alone = kept["numbers"]["heads of the runs not held"][0]
    assert len(kept_alone["layer 1"]["2"]) == 6
    assert "induction head" in (tmp_path / "what_needs_to_go_right.html").read_text()
