"""Steering what forms: head statistics in the loss, and activations held through training."""

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import probes
from interp.metrics import mean_loss
from interp.probes import head_statistics
from interp.tasks import Batch
from interp.training import Clamp, Clamped, Steer, held
from interp.training.clamps import PATTERNS, VALUES
from interp.training.steering import STATISTICS, Listener, rows_in
from tests.tiny import tiny
from tests.tiny_runs import (
    BOTH,
    tiny_config,
    tiny_task,
    trained,
)


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


def test_a_mean_over_many_examples_is_one_in_bfloat16_too():
    x, real = torch.ones(600, 2, 3, dtype=torch.bfloat16), torch.ones(600, 2, dtype=torch.bool)
    for kind in ("mean", "grand_mean"):
        assert torch.equal(VALUES[kind](x, real), x)


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
