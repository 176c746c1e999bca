"""Steering what forms: head statistics in the loss, and activations held through training."""

import json
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import probes, report
from interp.cli import run as cli
from interp.metrics import mean_loss
from interp.probes import head_statistics
from interp.report.page import page
from interp.tasks import Batch
from interp.training import Clamp, Clamped, Steer, held
from interp.training.clamps import PATTERNS, VALUES
from interp.training.steering import STATISTICS, Listener, rows_in
from tests.tiny import tiny
from tests.tiny_runs import (
    Cancelled,
    cancel_at,
    same_weights,
    tiny_config,
    tiny_task,
    trained,
    untimed,
)

BOTH = {
    "steer": [{"statistic": "normalized_entropy", "weight": 0.5, "layers": [1], "floor": 0.9}],
    "clamps": [{"to": "previous_token", "heads": [[0, 1]]}],
}


def padded(bos=None):
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 6, (4, 12), generator=generator)
    mask = torch.ones(4, 12, dtype=torch.bool)
    mask[0, :4], mask[1, 9:] = False, False
    return Batch(tokens, mask, tokens.roll(-1, 1).masked_fill(~mask, -100))


# --- statistics in the loss ----------------------------------------------------------------


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("kind", ["llama", "window", "alibi_mqa"])
def test_penalty_is_the_weighted_mean_of_the_statistic(statistic, kind):
    model, batch = tiny(kind), padded()
    steers = (Steer(statistic=statistic, weight=-0.5, heads=((0, 1), (1, 0), (1, 3))),)
    listener = Listener(steers, model.config, batch, rows_in(steers, model.config, batch))
    plain = model(batch.tokens, mask=batch.mask)
    steered = model(batch.tokens, mask=batch.mask, kernel=listener)
    assert torch.equal(steered, plain)
    found = getattr(head_statistics(model, batch.tokens, mask=batch.mask), statistic)
    if kind == "window" and statistic not in ("entropy", "normalized_entropy", "previous_token"):
        return  # there a row that can't see its target counts as 0, not as none
    wanted = -0.5 * (found[0, 1] + found[1, 0] + found[1, 3]) / 3
    assert_close(listener.penalty(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_penalty_has_the_gradient_of_the_pattern_s_own(statistic):
    model, batch = tiny("llama"), padded()
    steers = (Steer(statistic=statistic, weight=1.0, layers=(1,)),)
    listener = Listener(steers, model.config, batch, rows_in(steers, model.config, batch))
    model(batch.tokens, mask=batch.mask, kernel=listener)
    (got,) = torch.autograd.grad(listener.penalty(), model.blocks[1].attn.qkv.weight)
    generator = torch.Generator().manual_seed(0)
    towards = torch.randn(got.shape, generator=generator)
    values = []
    with torch.no_grad():
        for sign in (1, -1):
            model.blocks[1].attn.qkv.weight.add_(sign * 1e-2 * towards)
            stat = head_statistics(model, batch.tokens, mask=batch.mask)
            values.append(getattr(stat, statistic)[1].mean())
            model.blocks[1].attn.qkv.weight.sub_(sign * 1e-2 * towards)
    # A central difference: its error is of the second order of the step.
    assert_close((got * towards).sum(), (values[0] - values[1]) / 2e-2, atol=1e-3, rtol=1e-2)


def entropies(run):
    tokens = tiny_task().batch(32, torch.Generator().manual_seed(9)).tokens
    return head_statistics(run.model, tokens).normalized_entropy


def test_an_entropy_penalty_lowers_and_a_bonus_raises_it_against_the_control(tmp_path):
    how = {"steps": 60, "learning_rate": 1e-2}
    control = entropies(trained(tmp_path / "control", **how))
    assert (control[1] < 0.99).all()  # 1 is the most there is
    for weight, sign, least in ((1.0, -1, 0.1), (-1.0, 1, 0.01)):
        steer = (Steer(statistic="normalized_entropy", weight=weight, layers=(1,)),)
        run = trained(tmp_path / str(weight), steer=steer, **how)
        moved = sign * (entropies(run) - control)
        assert (moved[1] > least).all(), (weight, moved)
        assert run.metrics[-1]["penalty"] * weight > 0


def test_a_floor_acts_on_what_lacks_only(tmp_path):
    model, batch = tiny("llama"), padded()
    lowest = head_statistics(model, batch.tokens, mask=batch.mask, also=["per_position"])
    assert lowest.normalized_entropy.min() > 0.3
    for bound, is_zero in (({"floor": 0.01}, True), ({"floor": 1.0}, False)):
        steers = (Steer(statistic="normalized_entropy", weight=2.0, **bound),)
        listener = Listener(steers, model.config, batch, rows_in(steers, model.config, batch))
        model(batch.tokens, mask=batch.mask, kernel=listener)
        assert (listener.penalty().abs() < 1e-6) == is_zero
    wanted = 2 * (1 - lowest.normalized_entropy.mean())
    assert_close(listener.penalty(), wanted, atol=1e-5, rtol=1e-5)


def test_parts_of_a_batch_add_up_to_its_penalty(tmp_path):
    whole = trained(tmp_path / "whole", **BOTH)
    parts = trained(tmp_path / "parts", micro_batch_size=3, **BOTH)
    for name in ("train_loss", "penalty"):
        got = [line[name] for line in parts.metrics[1:]]
        assert got == pytest.approx([line[name] for line in whole.metrics[1:]], abs=1e-4)


def test_lower_precision_is_steered_in_float32(tmp_path):
    low = trained(tmp_path / "low", precision="bfloat16", **BOTH)
    full = trained(tmp_path / "full", **BOTH)
    assert low.metrics[-1]["penalty"] == pytest.approx(full.metrics[-1]["penalty"], abs=0.02)


# --- clamps --------------------------------------------------------------------------------

REAL = torch.tensor([[False, True, True, True, True]])
TOKENS = torch.tensor([[9, 7, 8, 7, 7]])
ROWS = {
    "previous_token": [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
    "match": [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0.5, 0, 0.5]],
    "uniform": [[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0.25] * 4],
    "first_token": [[1, 0, 0, 0]] * 4,
}


@pytest.mark.parametrize("to", PATTERNS)
def test_patterns_that_are_held_are_those_written_down_by_hand(to):
    got = PATTERNS[to](TOKENS, REAL)[0]
    assert_close(got[1:, 1:], torch.tensor(ROWS[to], dtype=torch.float32))
    assert got[0].sum() == 0
    assert got[:, 0].sum() == 0  # a pad is neither row nor key


def test_means_are_over_real_tokens_by_position():
    x = torch.tensor([[[100.0], [1.0], [3.0]], [[5.0], [7.0], [200.0]]])
    real = torch.tensor([[False, True, True], [True, True, False]])
    got = VALUES["mean"](x, real)[..., 0][real]
    assert_close(got, torch.tensor([3.0, 5.0, 3.0, 5.0]))
    assert_close(VALUES["grand_mean"](x, real)[..., 0], torch.full((2, 3), 4.0))


def test_a_held_head_s_queries_and_keys_never_learn_and_the_others_do(tmp_path):
    clamps = (Clamp(to="match", heads=((1, 0),)), Clamp(to="zero", heads=((0, 1),)))
    run = trained(tmp_path / "a", clamps=clamps, weight_decay=0.0)
    first = interp.Transformer(tiny_config())
    for name in ("W_Q", "W_K", "W_V"):
        moved = (getattr(run.model, name) - getattr(first, name)).abs().amax((-1, -2)) > 0
        assert moved[0, 0]
        assert moved[1, 1]
        assert not moved[0, 1]  # its z is 0 at every step
        assert bool(moved[1, 0]) == (name == "W_V")


def test_metrics_are_of_the_clamped_model_and_the_saved_one_is_free(tmp_path):
    clamps = (Clamp(to="previous_token", layers=(0,)), Clamp(to="zero", hook="hook_pos_embed"))
    run = trained(tmp_path / "a", clamps=clamps)
    model, last = interp.load(run.path), run.metrics[-1]
    clamped = Clamped(model, clamps)
    assert last["max_previous_token"][0] == pytest.approx(1.0)
    batch = tiny_task().batch(64, torch.Generator().manual_seed(1), split="held_out")
    stats = head_statistics(clamped, batch.tokens)
    assert_close(stats.previous_token[0], torch.ones(2))
    assert (head_statistics(model, batch.tokens).previous_token[0] < 0.9).all()
    pattern = model.run_with_cache(batch.tokens)[1]["pattern", 0]
    assert not torch.equal(pattern, PATTERNS["previous_token"](batch.tokens, batch.mask)[:, None])
    held_loss = mean_loss(clamped(batch.tokens), batch.targets)
    free = mean_loss(model(batch.tokens), batch.targets)
    assert held_loss.item() == pytest.approx(last["held_out_loss"], abs=0.1)
    assert free.item() == pytest.approx(last["held_out_loss_unclamped"], abs=0.1)
    assert last["held_out_loss"] != last["held_out_loss_unclamped"]


def test_a_matching_clamp_scores_as_perfect_induction_and_probes_read_through_it():
    model = tiny("llama", bos_token=0, n_ctx=48)
    clamped = Clamped(model, (Clamp(to="match", heads=((1, 2),)),))
    scores = probes.induction_scores(clamped)
    assert scores[1, 2] == pytest.approx(1.0)
    assert (scores[0] < 0.9).all()


def test_hooks_that_hold_can_be_given_to_any_call():
    model, batch = tiny("mlp"), padded()
    clamps = (Clamp(to="zero", hook="blocks.1.hook_mlp_out"), Clamp(to="uniform", layers=(0,)))
    hooks = held(clamps, model.config, batch.tokens, batch.mask)
    _, cache = model.run_with_cache(batch.tokens, mask=batch.mask, hooks=hooks)
    assert cache["blocks.1.hook_mlp_out"].abs().max() == 0
    assert cache["blocks.0.hook_mlp_out"].abs().max() > 0
    wanted = PATTERNS["uniform"](batch.tokens, batch.mask)[:, None].expand(-1, 4, -1, -1)
    assert_close(cache["pattern", 0], wanted)


# --- by config -----------------------------------------------------------------------------


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
        clamped(padded().tokens, kv_cache=model.new_kv_cache())
