"""The analyses of attention: what they measure is what they say, at the smallest size."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[1] / "analyses"


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)


def test_claims_about_numbers_are_measured(claims, generator):
    from claims import numbers

    found = [numbers.scaling(generator), numbers.precision(generator), numbers.masks(generator)]
    assert found[0].verdict == "holds"
    assert found[0].measured["variance_scaled"][1024] == pytest.approx(1, abs=0.1)
    assert "nan" in found[2].measured["−inf by hand, row that sees nothing"]
    assert found[2].measured["−1e9 by hand, the same row"] == [0.25] * 4
    assert found[2].measured["ours, output of that row"] == [0.0] * 8


def test_a_performers_distance_falls_with_features(claims, generator):
    from claims import cost

    with torch.no_grad():
        found = cost.performer(generator).measured["KL_by_features"]
    for row in found.values():
        assert row[1024] < row[16]


def test_the_page_escapes_and_names_the_code_path(claims):
    from attention_claims import _page
    from claims.record import Claim

    page = _page([Claim("a < b", {"x": 1.0}, "holds", "so it is", "some.path")])
    assert "a &lt; b" in page
    assert "some.path" in page


def test_induction_is_described_by_distance(claims):
    import induction_under_attention as script
    from claims.training import trained

    found = script.described(trained(0, attention="linear"))
    assert len(found["distances"]) == len(found["accuracy_by_distance"]) > 0
    assert found["accuracy"] < 0.2
    json.dumps(found)


def test_distance_is_to_the_latest_earlier_occurrence(claims):
    from induction_under_attention import _distance

    assert _distance(torch.tensor([[5, 6, 5, 5, 7]])).tolist() == [[0, 0, 2, 1, 0]]
