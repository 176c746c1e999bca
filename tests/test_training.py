"""Training: what a run folder holds, and exact resume."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import interp
from interp import probes
from interp.metrics import per_token_loss
from interp.runs import checkpoint_steps, read_metrics
from interp.tasks import Batch, make
from interp.training import TrainingOptions, TrainingStopped
from interp.training.loop import HELD_OUT_SEED
from tests.tiny_runs import (
    Cancelled,
    cancel_at,
    same_weights,
    tiny_config,
    tiny_task,
    trained,
    untimed,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "whole")


# --- the folder ----------------------------------------------------------------------------


def test_run_folder_says_what_was_trained_and_on_what(run):
    described = json.loads((run.path / "config.json").read_text())
    assert interp.TransformerConfig.from_dict(described["model"]) == tiny_config()
    assert described["training"]["steps"] == 24
    assert described["versions"]["torch"] == torch.__version__
    assert run.task.options == tiny_task().options


def test_checkpoints_are_about_eight_to_an_octave():
    kept = TrainingOptions(steps=4096).checkpoint_steps()
    assert kept[0] == 0
    assert kept[-1] == 4096
    for octave in (64, 256, 2048):
        assert 8 <= sum(octave <= step < 2 * octave for step in kept) <= 12


def test_round_steps_have_a_checkpoint():
    assert {1, 50, 100, 400, 600} <= set(TrainingOptions(steps=600).checkpoint_steps())


def test_newest_model_is_the_trained_one(run):
    assert same_weights(interp.load(run.path), run.model)
    assert same_weights(interp.load(run.path, step=24), run.model)
    assert not run.model.training


def test_first_checkpoint_is_the_untrained_model(run):
    assert same_weights(run.load(0), interp.Transformer(tiny_config()))
    assert not same_weights(run.load(0), run.load(1))


def test_metrics_have_a_line_for_each_evaluation(run):
    assert [line["step"] for line in run.metrics] == [*range(12), 16, 20, 23, 24]
    first, last = run.metrics[0], run.metrics[-1]
    assert first["train_loss"] is None
    assert last["tokens"] == 24 * 4 * 16
    assert last["held_out_loss"] < first["held_out_loss"]


def test_metrics_have_the_best_head_of_each_layer(run):
    last = run.metrics[-1]
    for name in ("induction", "previous_token", "duplicate_token", "sink", "normalized_entropy"):
        assert len(last[f"max_{name}"]) == 2
        assert all(0 <= score <= 1 for score in last[f"max_{name}"])
    scores = probes.induction_scores(run.model, n_sequences=4).amax(-1)
    torch.testing.assert_close(torch.tensor(last["max_induction"]), scores)


def test_in_context_score_is_of_the_held_out_losses_by_position(tmp_path):
    task = make("text", length=32)
    config = interp.TransformerConfig(
        n_layers=1, n_heads=2, d_model=16, d_vocab=task.d_vocab, n_ctx=32
    )
    run = trained(tmp_path / "a", config, task, steps=2, evaluation_size=64)
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    batch = task.batch(64, generator, split="held_out")
    losses = per_token_loss(run.model(batch.tokens), batch.targets)
    wanted = losses[:, -3:].nanmean() - losses[:, 3:6].nanmean()
    # The mean of the last three is over positions: the very last predicts nothing.
    assert run.metrics[-1]["in_context_score"] == pytest.approx(wanted.item(), abs=1e-4)


def test_model_without_softmax_trains_and_has_no_head_scores(tmp_path):
    linear = trained(tmp_path / "a", tiny_config(attention="linear"), steps=2)
    assert "max_induction" not in linear.metrics[-1]
    assert linear.metrics[-1]["held_out_loss"] > 0


def test_half_written_metrics_line_is_left_out(run, tmp_path):
    text = (run.path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 99, "tra')
    assert read_metrics(tmp_path) == run.metrics


def test_same_seed_gives_the_same_weights_and_another_seed_others(run, tmp_path):
    assert same_weights(trained(tmp_path / "again").model, run.model)
    assert not same_weights(trained(tmp_path / "other", seed=1).model, run.model)


# --- resuming ------------------------------------------------------------------------------


def test_stopped_and_resumed_run_equals_an_unstopped_one(run, tmp_path):
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10))
    assert interp.Run(tmp_path / "a").finished is False
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(20), resume=True)
    resumed = trained(tmp_path / "a", resume=True)
    assert same_weights(resumed.model, run.model)
    assert untimed(resumed.metrics) == untimed(run.metrics)
    assert resumed.steps == run.steps


def test_dropout_takes_any_seed_that_the_data_takes(tmp_path):
    for seed in (2**32 + 1, 2**64 - 1):
        assert trained(tmp_path / str(seed), tiny_config(dropout=0.3), seed=seed, steps=2).finished


def test_resuming_with_dropout_and_tied_embeddings_is_exact_too(tmp_path):
    config = tiny_config(dropout=0.3, tied_embeddings=True, d_mlp=8)
    whole = trained(tmp_path / "whole", config)
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", config, progress=cancel_at(10))
    assert same_weights(trained(tmp_path / "a", config, resume=True).model, whole.model)


def test_stopped_run_loads_at_the_step_where_it_stopped(run, tmp_path):
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", checkpoints_per_octave=0, progress=cancel_at(20))
    assert interp.Run(tmp_path / "a").steps == []
    stopped = interp.load(tmp_path / "a")
    assert not same_weights(stopped, run.load(16))
    assert not same_weights(stopped, run.load(23))


def test_run_killed_before_its_last_save_resumes_from_an_earlier_one(run, tmp_path):
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10))
    early = (tmp_path / "a/checkpoints/newest.safetensors").read_bytes()
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(20), resume=True)
    (tmp_path / "a/checkpoints/newest.safetensors").write_bytes(early)
    resumed = trained(tmp_path / "a", resume=True)
    assert same_weights(resumed.model, run.model)
    assert untimed(resumed.metrics) == untimed(run.metrics)


def test_resuming_a_finished_run_changes_nothing(run):
    before = (run.path / "metrics.jsonl").read_text()
    assert same_weights(trained(run.path, resume=True).model, run.model)
    assert (run.path / "metrics.jsonl").read_text() == before


def test_evaluation_never_changes_training(run, tmp_path):
    often = trained(tmp_path / "often", evaluate_every=1, evaluation_size=3)
    seldom = trained(tmp_path / "seldom", evaluate_every=24, checkpoints_per_octave=0)
    assert seldom.steps == [24]
    assert same_weights(often.model, run.model)
    assert same_weights(seldom.model, run.model)


def test_training_leaves_the_global_generator_alone(tmp_path):
    before = torch.get_rng_state()
    trained(tmp_path / "a", tiny_config(dropout=0.3), steps=3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_saves_and_stops_and_the_run_goes_on_as_if_nothing_was(number, tmp_path):
    def progress(done, total):
        if done == 10:
            os.kill(os.getpid(), number)

    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(TrainingStopped, match="stopped at step 10 of 24") as stopped:
        trained(tmp_path / "a", progress=progress)
    assert stopped.value.signal == number
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    whole = trained(tmp_path / "whole")
    assert same_weights(trained(tmp_path / "a", resume=True).model, whole.model)


def test_killed_process_leaves_a_folder_that_loads_and_resumes(run, tmp_path):
    out = tmp_path / "a"
    code = (
        "import sys\n"
        "from tests.tiny_runs import trained\n"
        "import time\n"
        "trained(sys.argv[1], progress=lambda done, total: time.sleep(60 * (done == 20)))\n"
    )
    root = Path(__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-c", code, out], cwd=root)
    deadline = time.monotonic() + 60
    while checkpoint_steps(out)[-1:] != [20]:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    interp.load(out)
    assert same_weights(trained(out, resume=True).model, run.model)


def test_training_works_outside_the_main_thread(tmp_path):
    thread = threading.Thread(target=trained, args=(tmp_path / "a",), kwargs={"steps": 2})
    thread.start()
    thread.join()
    assert interp.Run(tmp_path / "a").finished


# --- tasks ---------------------------------------------------------------------------------


def test_function_serves_as_a_task_and_padding_is_no_part_of_it(tmp_path):
    def draw(n, generator):
        tokens = torch.randint(0, 16, (n, 8), generator=generator)
        mask = torch.arange(8) < torch.randint(3, 9, (n, 1), generator=generator)
        targets = tokens.masked_fill(~mask, -100)
        return Batch(tokens.masked_fill(~mask, 3), mask, targets)

    def other_pads(n, generator):
        batch = draw(n, generator)
        return Batch(batch.tokens.masked_fill(~batch.mask, 9), batch.mask, batch.targets)

    one = trained(tmp_path / "a", task=draw)
    two = trained(tmp_path / "b", task=other_pads)
    assert same_weights(one.model, two.model)
    assert one.metrics[-1]["held_out_loss"] is None
    assert one.metrics[-1]["train_loss"] < one.metrics[1]["train_loss"]
    with pytest.raises(ValueError, match="give tokens instead"):
        _ = one.task
