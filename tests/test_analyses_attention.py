"""The analyses of attention: what they measure is what they say, at the smallest size."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import typer

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


def test_claims_about_cost_are_measured(claims, monkeypatch, generator):
    from claims import cost, kernels

    monkeypatch.setattr(kernels, "LENGTHS", (16, 32))
    monkeypatch.setattr(cost, "LENGTHS", (32, 64))
    monkeypatch.setattr(cost, "FITTED", (32, 64))
    monkeypatch.setattr(kernels, "seconds", _once(kernels.seconds))
    monkeypatch.setattr(cost, "seconds", _once(cost.seconds))
    monkeypatch.setattr(cost, "_timed", partial(_small, cost._timed))
    found = [*kernels.measure(generator), *cost.measure(generator)]
    assert len(found) == 8
    for claim in found:
        assert claim.because
        assert "nan" not in json.dumps(claim.measured).lower()
    speed = found[4].measured
    assert set(speed["peak_added_MiB"][32]) == {"fused", "materialised"}
    assert len(found[6].measured["exponents"]) == 7


def _once(seconds):
    return lambda ways, **_: seconds(ways, rounds=1, at_least=0.0)


def _small(timed, rules, n, generator, d_head=8):
    return timed(rules, min(n, 64), generator, d_head)


def test_a_performers_distance_falls_with_features(claims, generator):
    from claims import cost

    with torch.no_grad():
        found = cost.performer(generator).measured["KL_by_features"]
    for row in found.values():
        assert row[1024] < row[16]


def test_what_is_measured_is_written_by_subject_and_read_by_the_report(
    claims, monkeypatch, tmp_path
):
    import attention_claims as script

    from interp.report.claims import Claim, read_claims

    said = Claim("a < b", {"x": {"1": 1.0, "2": 90.0}}, "holds", "so it is", "some.path")
    monkeypatch.setattr(script, "_measured", lambda subject, steps: iter([said]))
    for subject in ("cost", "numbers"):
        script.main(tmp_path, only=subject)
    page = (tmp_path / "attention_claims.html").read_text()
    assert "a &lt; b" in page
    assert "some.path" in page
    assert page.count("plotly-graph-div") == 2
    found = read_claims(tmp_path / "attention_claims.json")
    assert [s.subject for s in found] == ["numbers", "cost"]  # in order, whenever measured
    assert found[1].claims == (said,)
    assert "cores" in found[0].machine
    with pytest.raises(typer.BadParameter, match="numbers, kernels, cost, models, induction"):
        script.main(tmp_path, only="speed")


def test_pictures_are_lines_over_sizes_and_bars_over_names(claims):
    from claims.pictures import pictures
    from claims.record import Claim

    measured = {
        "by_size": {1: {"a": 1.0, "b": 2.0}, 8: {"a": 64.0, "b": 3.0}},
        "by_name": {"one": {"x": 1.0, "y": 2.0}, "two": {"x": 3.0, "y": 4.0}},
        "single": 3.0,
    }
    lines, bars = pictures(Claim("c", measured, "holds", "", ""))
    assert [(trace.name, trace.x, trace.y) for trace in lines.data] == [
        ("a", (1, 8), (1.0, 64.0)),
        ("b", (1, 8), (2.0, 3.0)),
    ]
    assert lines.layout.yaxis.type == "log"
    assert [(trace.name, trace.x) for trace in bars.data] == [
        ("one", ("x", "y")),
        ("two", ("x", "y")),
    ]


def test_peaks_and_slopes_are_what_they_say(claims):
    from claims.record import peak_added, slope

    assert slope({2: 12.0, 4: 48.0, 8: 192.0}) == pytest.approx(2)
    for size in (
        128,
        48,
    ):  # a smaller peak after a larger one; both too large to be kept when freed
        assert peak_added(lambda n=size: torch.ones(n, 1 << 18)) == pytest.approx(size, abs=3)


def test_streams_and_grokking_are_asked_of_what_was_trained(claims, generator):
    from claims import models
    from claims.training import trained, under

    fresh = models._never_repeating(4, generator)
    assert all(len(set(row)) == 33 for row in fresh.tokens.tolist())
    assert (fresh.targets[:, :28] == -100).all()
    assert torch.equal(fresh.targets[:, 28:-1], fresh.tokens[:, 29:])
    run = trained(1, n_layers=1)
    found = models.streams(run, run, generator)
    row = found.measured["loss_beyond_the_window"]["asked at repeats only"]
    wide = under(run.model, "window", window=40)
    torch.testing.assert_close(wide(fresh.tokens), run.model(fresh.tokens))
    assert row["window 28"] != row["whole past"]
    assert row["the same, positions of the cache"] != row["4 sinks + window 24"]
    assert all(x != x for x in models.grokking(most=1).values())  # NaN: not yet
    assert models._cache_bytes(run.model) == 2 * 4 * 16 * 4


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
