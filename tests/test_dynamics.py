import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import dynamics, probes
from interp.circuits import copying_score
from interp.report.figures import in_context_figure
from tests.tiny import some_tokens, tiny


class Snapshots:
    """Models at steps, as a run has them."""

    def __init__(self, path, models):
        self.path, self.models, self.loaded = path, models, []

    @property
    def steps(self):
        return sorted(self.models)

    def load(self, step):
        self.loaded.append(step)
        return self.models[step]


@pytest.fixture
def run(tmp_path):
    return Snapshots(tmp_path, {step: tiny("llama", init_seed=step) for step in (0, 10, 20)})


def test_a_trajectory_holds_each_checkpoint_s_own_statistics(run):
    tokens = some_tokens()
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, :4] = False
    got = dynamics.over_checkpoints(run, tokens, mask=mask, statistics=dynamics.STATISTICS)
    assert got.steps == (0, 10, 20)
    for n, step in enumerate(got.steps):
        model = run.models[step]
        heads = probes.head_statistics(model, tokens, mask=mask)
        assert_close(got.previous_token[n], heads.previous_token, equal_nan=True)
        assert_close(got.write_norm[n], heads.write_norm)
        assert_close(got.induction[n], probes.induction_scores(model))
        assert_close(got.copying[n], copying_score(model))
    assert_close(got.kl_to_final[-1], torch.zeros(2, 4), atol=1e-4, rtol=0)
    assert (got.kl_to_final[0] > 0).all()
    assert got.k_composition[:, 1].isnan().all()  # the last layer is read by none
    assert not got.k_composition[:, 0].isnan().any()
    assert len(got.frame()) == 3 * 2 * 4


def test_induction_is_taken_on_the_repeats_that_are_given(run):
    block = some_tokens()[:, :4]
    repeats = block.repeat(1, 3)
    ask = {"repeats": repeats, "statistics": ("induction",)}
    got = dynamics.over_checkpoints(run, some_tokens(), **ask)
    for n, step in enumerate(got.steps):
        expected = probes.head_statistics(run.models[step], repeats).induction
        assert_close(got.induction[n], expected)
    drawn = dynamics.over_checkpoints(run, some_tokens(), statistics=("induction",))
    assert not torch.equal(drawn.induction, got.induction)  # nor are they kept as the same
    with pytest.raises(ValueError, match="what induction is taken on"):
        dynamics.over_checkpoints(run, some_tokens(), repeats=repeats, statistics=("sink",))


def test_statistics_may_come_one_by_one(run):
    asked = ["previous_token", "sink"]
    listed = dynamics.over_checkpoints(run, some_tokens(), statistics=asked)
    got = dynamics.over_checkpoints(run, some_tokens(), statistics=(name for name in asked))
    assert_close((got.previous_token, got.sink), (listed.previous_token, listed.sink))


def test_what_was_computed_is_read_again_and_what_broke_is_mended(run):
    tokens, told = some_tokens(), []
    ask = {"statistics": ("previous_token", "k_composition")}
    first = dynamics.over_checkpoints(run, tokens, **ask, progress=lambda *at: told.append(at))
    assert told == [(1, 3), (2, 3), (3, 3)]
    run.loaded.clear()
    again = dynamics.over_checkpoints(run, tokens, **ask)
    assert run.loaded == []
    assert_close(again.k_composition, first.k_composition, equal_nan=True)
    next((run.path / "dynamics").glob("*-00000010.json")).write_text("{")
    mended = dynamics.over_checkpoints(run, tokens, **ask)
    assert run.loaded == [10]
    assert_close(mended.previous_token, first.previous_token)
    dynamics.over_checkpoints(run, some_tokens(seed=1), **ask)
    assert run.loaded == [10, 0, 10, 20]  # other tokens: computed anew


def test_a_stopped_call_goes_on_where_it_was(run):
    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dynamics.over_checkpoints(run, some_tokens(), progress=stop)
    run.loaded.clear()
    dynamics.over_checkpoints(run, some_tokens())
    assert run.loaded == [20]


def test_a_real_run_can_be_followed(tmp_path):
    config = interp.TransformerConfig(
        n_layers=1, n_heads=2, d_model=8, d_vocab=33, n_ctx=16, bos_token=32
    )
    task = interp.tasks.make("repeated_tokens", vocab=32, length=16)
    run = interp.train(
        config, task=task, steps=4, batch_size=2, out=tmp_path / "run", progress=False
    )
    tokens = task.batch(2, torch.Generator().manual_seed(0)).tokens
    got = dynamics.over_checkpoints(run, tokens)
    assert got.steps == tuple(run.steps)
    assert got.induction.shape == (len(run.steps), 1, 2)


def test_the_report_draws_the_in_context_score_beside_the_heads_where_there_is_one():
    rows = [
        {
            "step": step,
            "in_context_score": score,
            "max_induction": [0.0, match],
            "max_previous_token": [match, None],
        }
        for step, score, match in ((0, 0.1, 0.0), (10, -0.5, 0.4), (20, -2.0, 0.9))
    ]
    findings = SimpleNamespace(subject=SimpleNamespace(metrics=rows), formation=None)
    (figure,) = in_context_figure(findings)
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.name}
    assert lines["in-context score, of -2.00 nats"] == pytest.approx([-0.05, 0.25, 1.0])
    assert lines["prefix matching (best head)"] == pytest.approx([0.0, 0.4, 0.9])
    for row in rows:
        row["in_context_score"] = None
    assert in_context_figure(findings) == []


@pytest.mark.parametrize("statistics", [("previous_token",), ("kl_to_final",)])
def test_models_of_different_sizes_are_no_run(statistics, tmp_path):
    models = {step: tiny("llama", n_layers=step) for step in (1, 2)}
    with pytest.raises(ValueError, match=r"one model: .* \[1, 4\] at step 1, \[2, 4\] at step 2"):
        dynamics.over_checkpoints(Snapshots(tmp_path, models), some_tokens(), statistics=statistics)


def test_what_is_no_run_and_steps_that_are_no_list_are_refused(run):
    for wrong in ("hf/checkpoint-10", None):
        with pytest.raises(TypeError, match=f"wanted a Run, or a list .*; got {wrong!r}"):
            dynamics.over_checkpoints(wrong, some_tokens())
    with pytest.raises(TypeError, match="steps are a list of steps, .*; got 10"):
        dynamics.over_checkpoints(run, some_tokens(), steps=10)
    with pytest.raises(ValueError, match="at least one"):
        dynamics.over_checkpoints(run, some_tokens(), steps=[])


def test_repeats_of_another_shape_are_another_question(run):
    repeats = some_tokens(1, 5).repeat(2, 4)  # [2, 20], and the same numbers as [4, 10]
    found = [
        dynamics.over_checkpoints(
            run, some_tokens(), repeats=r, statistics=["induction"], steps=[0]
        )
        for r in (repeats, repeats.view(4, 10))
    ]
    assert run.loaded == [0, 0]
    assert not torch.equal(found[0].induction, found[1].induction)


def test_bad_questions_are_refused(run, tmp_path):
    with pytest.raises(ValueError, match="statistics are some of"):
        dynamics.over_checkpoints(run, some_tokens(), statistics=["entorpy"])
    with pytest.raises(ValueError, match="in a list; got 'entropy'"):
        dynamics.over_checkpoints(run, some_tokens(), statistics="entropy")
    with pytest.raises(ValueError, match="no checkpoint at"):
        dynamics.over_checkpoints(run, some_tokens(), steps=[5])
    with pytest.raises(ValueError, match="no checkpoint yet"):
        dynamics.over_checkpoints(Snapshots(tmp_path, {}), some_tokens())


def test_formation_is_where_the_score_passes_half_the_way():
    steps = [0, 10, 20, 30, 40, 50]
    found = dynamics.formation(steps, [0.0, 0.0, 0.2, 0.8, 1.0, 1.0])
    assert found.step == pytest.approx(25)
    assert (found.low, found.high) == (10, 40)
    assert dynamics.formation(steps, [0.1] * 6).step is None
    late = dynamics.formation(steps, [0.0, 0.9, 0.0, 0.0, 1.0, 1.0])  # a bump is no rise
    assert late.step == pytest.approx(35)
    holes = dynamics.formation(steps, [0.0, math.nan, 0.2, 0.8, 1.0, 1.0])
    assert holes.step == pytest.approx(25)
    with pytest.raises(ValueError, match="in order"):
        dynamics.formation([3, 2, 1], [0.0, 0.5, 1.0])
    with pytest.raises(ValueError, match="3 measurements"):
        dynamics.formation([1, 2], [0.0, 1.0])


def test_seeds_give_a_mean_step_with_an_interval_and_those_that_never_rose_are_counted():
    found = [dynamics.Formation(step, None, None, 0.5) for step in (100.0, 120.0, 140.0, None)]
    got = dynamics.across_seeds(found)
    assert (got.step, got.formed, got.of) == (120.0, 3, 4)
    # t = 4.303 at 2 degrees of freedom, standard error 20 / sqrt 3
    assert (got.low, got.high) == pytest.approx((120 - 49.69, 120 + 49.69), abs=0.01)
    assert dynamics.across_seeds(found[:1]).low is None
    assert dynamics.across_seeds(found[3:]).step is None


def test_in_context_score_is_late_less_early():
    losses = torch.linspace(4, 1, 7).repeat(5, 1)
    losses[0, 2] = torch.nan
    assert dynamics.in_context_learning_score(losses, early=0, late=6) == pytest.approx(-3)
    assert_close(dynamics.loss_by_position(losses), torch.linspace(4, 1, 7))
    with pytest.raises(ValueError, match="early < late"):
        dynamics.in_context_learning_score(losses)


def test_in_context_score_at_any_length_is_late_less_early_in_shares_of_it():
    losses = torch.linspace(5, 0, 512).repeat(3, 1)
    at = dynamics.in_context_learning_score(losses, early=76, late=486)  # middles of the windows
    assert dynamics.in_context_score(losses) == pytest.approx(at, abs=0.02)
    short = torch.linspace(5, 0, 64).repeat(3, 1)
    assert dynamics.in_context_score(short) == pytest.approx(at, abs=0.15)  # coarser windows
    assert dynamics.in_context_score(torch.ones(2, 20)) == 0
    losses[:, :300] = torch.nan
    assert math.isnan(dynamics.in_context_score(losses))


def test_loss_pca_places_models_on_their_axes(generator):
    axis = torch.randn(30, generator=generator)
    along = torch.tensor([0.0, 1.0, 3.0, 7.0])
    placed, share = dynamics.loss_pca(along[:, None] * axis + 2)
    assert share[0] > 0.9999
    distance = (placed[1:, 0] - placed[:-1, 0]) / axis.norm()
    assert_close(distance, along.diff(), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="without NaN"):
        dynamics.loss_pca(torch.full((4, 3), torch.nan))


def test_shuffled_heads_are_matched_back(generator):
    features = torch.randn(3, 5, 4, generator=generator)
    order = torch.stack([torch.randperm(5, generator=generator) for _ in range(3)])
    shuffled = dynamics.reordered(features, order)
    shuffled = shuffled + 0.01 * torch.randn(shuffled.shape, generator=generator)
    found = dynamics.align_heads(features, shuffled)
    assert_close(dynamics.reordered(shuffled, found), features, atol=0.1, rtol=0)
    assert torch.equal(found, order.argsort(-1))
