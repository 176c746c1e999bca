"""Training: what a run folder holds, exact resume, and what is refused."""

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
from interp.runs import checkpoint_steps, read_metrics
from interp.tasks import Batch, make
from interp.training import TrainingOptions, TrainingStopped

OPTIONS = {
    "steps": 24,
    "batch_size": 4,
    "evaluation_size": 8,
    "evaluate_every": 10,
    "warmup_steps": 5,
    "checkpoints_per_octave": 2,
    "progress": False,
    "device": "cpu",
}


def tiny_task():
    return make("repeated_tokens", vocab=16, length=16, max_period=6, max_prefix=2)


def tiny_config(**changes):
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_vocab": 17, "n_ctx": 16}
    return interp.TransformerConfig(**sizes, bos_token=16, **changes)


def trained(out, config=None, task=None, **changes):
    return interp.train(config or tiny_config(), task or tiny_task(), out=out, **OPTIONS | changes)


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def untimed(metrics):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in metrics]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "whole")


class Cancelled(Exception):
    pass


def cancel_at(step):
    def progress(done, total):
        if done >= step:
            raise Cancelled

    return progress


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
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from test_training import trained\n"
        "import time\n"
        "trained(sys.argv[1], progress=lambda done, total: time.sleep(60 * (done == 20)))\n"
    )
    here = Path(__file__).parent
    process = subprocess.Popen([sys.executable, "-c", code, out, here, Path.cwd()])
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


# --- what is refused -----------------------------------------------------------------------


def test_folder_that_holds_a_run_is_refused(run):
    with pytest.raises(FileExistsError, match="is in use"):
        trained(run.path)


def test_folder_that_another_process_writes_to_is_refused(tmp_path):
    from interp.training.folder import claimed

    with claimed(tmp_path), pytest.raises(FileExistsError, match="another process"):
        trained(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, r"training.seed = 0, not 1"),
        ({"config": tiny_config(d_mlp=8)}, r"model.d_mlp = None, not 8"),
        ({"task": make("repeated_tokens", vocab=16, length=12, max_period=6)}, "task.options"),
    ],
)
def test_other_settings_than_the_folders_are_refused_by_name(run, changes, named):
    with pytest.raises(ValueError, match=named):
        trained(run.path, resume=True, **changes)


def test_run_of_an_older_version_that_lacks_a_setting_goes_on(tmp_path):
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10))
    path = tmp_path / "a/config.json"
    described = json.loads(path.read_text())
    del described["model"]["logit_soft_cap"], described["training"]["precision"]
    del described["task"]["options"]["scored"]
    path.write_text(json.dumps(described))
    assert trained(tmp_path / "a", resume=True).finished


def test_diverged_loss_is_said_and_not_saved(tmp_path):
    with pytest.raises(FloatingPointError, match=r"diverged; try a learning rate below 1e\+30"):
        trained(tmp_path / "a", learning_rate=1e30, warmup_steps=0, clip_norm=None)
    assert all(x.isfinite().all() for x in interp.load(tmp_path / "a").parameters())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "steps must be"),
        ({"learning_rate": -1.0}, "learning_rate must be"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'"),
        ({"task": "repeated_token"}, "did you mean repeated_tokens"),
        ({"task": make("running_majority", length=64)}, "n_ctx=16"),
        ({"task": make("text", length=16)}, "d_vocab=17"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(changes, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        trained(tmp_path / "a", **changes)
    assert not (tmp_path / "a").exists()


def test_checkpoint_that_is_not_there_names_the_nearest(run):
    with pytest.raises(FileNotFoundError, match="nearest are 16, 20, 23"):
        interp.load(run.path, step=18)


def test_broken_state_is_said(run, tmp_path):
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10))
    (tmp_path / "a/checkpoints/newest.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="not a whole state"):
        trained(tmp_path / "a", resume=True)
