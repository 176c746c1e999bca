"""Steering by config: saved with a run, from files and sweeps, resumed, and refused."""

import json
from dataclasses import replace

import pytest
import torch

import interp
from interp import report
from interp.cli import run as cli
from interp.report.page import page
from interp.training import Clamp, Clamped
from tests.tiny import tiny
from tests.tiny_runs import (
    BOTH,
    Cancelled,
    cancel_at,
    same_weights,
    tiny_config,
    trained,
    untimed,
)


def test_steered_run_says_so_resumes_exactly_and_refuses_other_steering(tmp_path):
    whole = trained(tmp_path / "whole", **BOTH)
    described = json.loads((whole.path / "config.json").read_text())["training"]
    assert described["steer"][0]["statistic"] == "normalized_entropy"
    assert described["clamps"] == [
        {"to": "previous_token", "heads": [[0, 1]], "layers": None, "hook": None}
    ]
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10), **BOTH)
    other = {**BOTH, "steer": [{**BOTH["steer"][0], "weight": 0.6}]}
    with pytest.raises(ValueError, match=r"training.steer = \[.*0.5.*, not \[.*0.6"):
        trained(tmp_path / "a", resume=True, **other)
    resumed = trained(tmp_path / "a", resume=True, **BOTH)
    assert same_weights(resumed.model, whole.model)
    assert untimed(resumed.metrics) == untimed(whole.metrics)


def test_the_report_says_that_a_clamped_run_is_measured_free(tmp_path):
    run = trained(tmp_path / "clamped", steps=2, **BOTH)
    found = report.analyze(run.path)
    assert "measured without them" in page(found)
    described = {**found.subject.described, "training": {"clamps": []}}
    free = replace(found, subject=replace(found.subject, described=described))
    assert "measured without them" not in page(free)


FILE = """
[model]
n_layers = 1
n_heads = 2
d_model = 8
[task]
name = "repeated_tokens"
vocab = 16
length = 16
max_period = 6
[training]
steps = 2
batch_size = 2
evaluation_size = 4
checkpoints_per_octave = 0
steer = [{statistic = "entropy", weight = 0.1}]
[[training.clamps]]
to = "zero"
heads = [[0, 1]]
"""
STEER = {"statistic": "entropy", "weight": 1}
SWEEP = """
[sweep]
training.steer = [[], [{statistic = "entropy", weight = 0.1}]]
"""


def test_a_file_steers_a_run_and_a_sweep(tmp_path, capsys):
    (tmp_path / "some.toml").write_text(FILE)
    common = ["--no-progress", "--json"]
    where = ["--config", str(tmp_path / "some.toml"), "--out", str(tmp_path / "one")]
    assert cli(["train", *where, *common]) == 0
    assert json.loads(capsys.readouterr().out)["penalty"] > 0
    assert cli(["train", "--out", str(tmp_path / "one"), "--resume", *common]) == 0
    capsys.readouterr()
    (tmp_path / "swept.toml").write_text(FILE + SWEEP)
    folder = str(tmp_path / "runs")
    assert cli(["sweep", str(tmp_path / "swept.toml"), "--out", folder, *common]) == 0
    rows = json.loads(capsys.readouterr().out)
    metrics = [interp.Run(row["run"]).metrics[-1] for row in rows]
    assert ["penalty" in line for line in metrics] == [False, True]
    assert all("held_out_loss_unclamped" in line for line in metrics)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steer": [{"statistic": "entorpy", "weight": 1}]}, "a statistic to steer by is one of"),
        ({"steer": [{"statistic": "entropy"}]}, "an entry has statistic, weight"),
        ({"steer": [{"statistic": "entropy", "weight": 1, "laers": [0]}]}, "got .*laers"),
        ({"steer": {"statistic": "entropy", "weight": 1}}, "steer wants a list"),
        ({"steer": [{"statistic": "entropy", "weight": 0}]}, "weight must not be 0"),
        ({"steer": [{"statistic": "entropy", "weight": -1, "floor": 1}]}, "be positive"),
        ({"steer": [{"statistic": "entropy", "weight": 1, "layers": [2]}]}, "layers are"),
        ({"steer": [{"statistic": "entropy", "weight": 1, "heads": [[0, 5]]}]}, "heads are pairs"),
        ({"steer": [STEER | {"layers": [0, 0]}]}, "layers: 0 is named twice"),
        ({"steer": [STEER | {"heads": [[0, 1], [0, 1]]}]}, r"heads: \(0, 1\) is named twice"),
        ({"steer": [STEER | {"weight": True}]}, "are finite numbers"),
        ({"steer": [STEER | {"floor": False}]}, "are finite numbers"),
        ({"clamps": [{"to": "zero", "hook": 3}]}, "name of an activation; got 3"),
        (
            {"clamps": [{"to": "match", "heads": [[1, 0]]}, {"to": "zero", "layers": [1]}]},
            r"\(1, 0\) is named twice",
        ),
        (
            {"clamps": [{"to": to, "hook": "hook_embed"} for to in ("zero", "mean")]},
            "hook_embed is named twice",
        ),
        (
            {
                "clamps": [
                    {"to": "zero", "heads": [[1, 0]]},
                    {"to": "mean", "hook": "blocks.*.attn.hook_z"},
                ]
            },
            r"\(1, 0\) is named twice",
        ),
        ({"clamps": [{"to": "zero"}]}, "one of heads, layers and hook"),
        ({"clamps": [{"to": "nought", "layers": [0]}]}, "`to` is one of"),
        ({"clamps": [{"to": "match", "hook": "hook_embed"}]}, "`to` is one of zero, mean"),
        ({"clamps": [{"to": "zero", "hook": "blocks.0.attn.hook_pattern"}]}, "with heads="),
        ({"clamps": [{"to": "mean", "layers": [0]}], "micro_batch_size": 2}, "whole batch"),
        ({**BOTH, "compile_model": True}, "outside of a compiled graph"),
        ({**BOTH, "clamps": [{"to": "match", "heads": [[1, 0]]}]}, "head .1, 0. is held"),
        (
            {**BOTH, "config": tiny_config(attention="window", attention_options={"window": 3})},
            "causal layers",
        ),
        ({**BOTH, "config": tiny_config(sink_logits=True)}, "without a sink"),
    ],
)
def test_steering_that_cannot_be_is_refused_before_anything_is_written(changes, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        trained(tmp_path / "a", **changes)
    assert not (tmp_path / "a").exists()


def test_clamp_of_an_activation_that_there_is_not_names_the_nearest(tmp_path):
    with pytest.raises(LookupError, match="the nearest are"):
        trained(tmp_path / "a", clamps=[{"to": "zero", "hook": "blocks.0.hook_mpl_out"}])


def test_a_clamped_model_wants_whole_sequences():
    model = tiny("mlp")
    clamped = Clamped(model, (Clamp(to="uniform", layers=(0,)),))
    with pytest.raises(ValueError, match="whole sequences"):
        clamped(torch.zeros(1, 4, dtype=torch.long), kv_cache=model.new_kv_cache())
