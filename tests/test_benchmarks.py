"""The benchmarks measure what they say, and each runs; how fast anything is, no test says."""

import json

import pytest
import torch

from benchmarks import head_statistics, peers, record
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.memory import Peak, peak
from benchmarks.timing import Round, Timing, interleave
from tests.ballast import hold
from tests.dashboard.browser import chromium

TINY = peers.Size(n_layers=2, n_heads=2, d_model=8, d_vocab=7, n_ctx=5, batch=3)


def test_rounds_run_forwards_and_backwards_in_turn():
    order = []
    actions = {name: lambda n=name: order.append(n) for name in "abc"}
    interleave(actions, rounds=2, warmup=0, shortest=0.0, patience=0.0)
    assert "".join(order[-6:]) == "abccba"


def test_undisturbed_rounds_count_and_all_are_kept():
    calm = [Round({"a": 1.0, "b": 2.0}, 0.0, False), Round({"a": 1.0, "b": 2.2}, 0.01, False)]
    loud = Round({"a": 1.0, "b": 9.0}, 1.5, True)
    timing = Timing([calm[0], loud, calm[1]], wanted=2, repeats={"a": 1, "b": 1})
    assert timing.counted == calm
    assert timing.calm
    assert timing.ratio("b", "a") == pytest.approx(2.1)
    assert timing.difference("b", "a") == pytest.approx(1.1)
    assert len(timing.rounds) == 3


def test_where_nothing_was_calm_the_calmest_rounds_count_and_it_is_said():
    rounds = [Round({"a": load}, load, True) for load in (1.0, 0.2, 0.5)]
    timing = Timing(rounds, wanted=2, repeats={"a": 1})
    assert timing.median("a") == pytest.approx(0.35)
    assert not timing.calm


def test_ratios_pair_samples_of_one_round():
    # A machine that slows down threefold half way: the ratio within each round stays 2.
    rounds = [Round({"a": t, "b": 2 * t}, 0.0, False) for t in (1.0, 1.0, 3.0, 3.0)]
    assert Timing(rounds, wanted=4, repeats={"a": 1, "b": 1}).ratio("b", "a") == 2.0


def test_peak_memory_is_that_of_the_function_in_its_own_process():
    ballast = bytearray(400 * 10**6)  # ours: must not be charged to the child
    small, large = peak(hold, megabytes=1), peak(hold, megabytes=100)
    assert large.value == 100 * 10**6
    # Two copies; the interpreter's own size is the same in both.
    assert 190e6 < large.bytes - small.bytes < 250e6
    assert small.bytes < len(ballast)


@pytest.mark.parametrize(("value", "met"), [(1.0, True), (1.1, False), (float("nan"), False)])
def test_a_limit_is_kept_up_to_its_bound_and_never_by_nan(value, met):
    assert record.Check("x", value, at_most=1.0).met is met
    assert record.Check("x", -value, at_least=-1.0).met is met


def test_all_peers_compute_the_same_logits(generator):
    pytest.importorskip("transformer_lens")
    bare = peers.Bare(TINY, generator)
    others = {
        "ours": peers.ours(bare),
        "TransformerLens": peers.transformer_lens(bare),
        "Hugging Face": peers.hugging_face(bare),
    }
    tokens = TINY.tokens(generator)
    peers.assert_same_logits(bare, others, tokens=tokens)
    with torch.no_grad():
        bare.blocks[1].up.bias[0] += 1.0
    with pytest.raises(AssertionError, match="ours"):
        peers.assert_same_logits(bare, others, tokens=tokens)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_runs_and_leaves_a_complete_record(name, tmp_path):
    pytest.importorskip("transformer_lens")
    if name == "dashboard" and chromium() is None:
        pytest.skip("there is no chromium")
    main([name, "--quick", "--patience=0", f"--out={tmp_path}"])
    kept = json.loads((tmp_path / f"{name}.json").read_text())
    assert kept["machine"]["cores"] >= 1
    assert kept["versions"]["torch"] == torch.__version__
    for measurement in kept["measurements"]:
        assert all(measurement["samples"].values())
        assert all("met" in check for check in measurement["checks"])


def test_tools_whose_patterns_do_not_fit_are_named_with_what_they_need(monkeypatch):
    monkeypatch.setattr(head_statistics, "peak", lambda _, **how: Peak(2 * 10**9, 1.0))
    monkeypatch.setattr(head_statistics, "_patterns_fit", lambda size: size.n_ctx <= 2048)
    small, large = (head_statistics._memory(n, alone=False) for n in (2048, 32_768))
    assert list(small.medians) == list(head_statistics.WAYS)
    assert small.notes["not_run"] == []
    assert list(large.medians) == ["forward", "ours"]
    # 2 layers, 8 heads, 32,768² weights of 4 bytes
    assert [line.rsplit("take ", 1)[1] for line in large.notes["not_run"]] == ["68.7 GB"] * 2


def test_unknown_benchmark_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["sped"])
    assert "no benchmark sped" in capsys.readouterr().err


def test_sizes_that_are_run_one_at_a_time_come_into_one_record(tmp_path, monkeypatch, capsys):
    def measured(name, value):
        return record.Measurement(name, {}, "s", "a", {"a": value}, {"a": 1.0}, {"a": [value]})

    for name, value in (("small", 1.0), ("large", 9.0), ("small", 2.0)):
        path = record.save("x", [measured(name, value)], folder=tmp_path, add=True)
    kept = json.loads(path.read_text())["measurements"]
    assert {m["name"]: m["medians"]["a"] for m in kept} == {"large": 9.0, "small": 2.0}
    monkeypatch.setattr(record, "versions", lambda: {"torch": "0"})
    with pytest.raises(ValueError, match="of other versions"):
        record.save("x", [measured("small", 1.0)], folder=tmp_path, add=True)
    with pytest.raises(SystemExit):
        main(["import_time", "--only", "small"])
    assert "--only goes with ablation_sweep" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no size 'huge'"):
        main(["ablation_sweep", "--only", "huge"])
    with pytest.raises(ValueError, match="nothing is called 'huge'; there are head statistics"):
        main(["head_statistics", "--only", "huge"])
