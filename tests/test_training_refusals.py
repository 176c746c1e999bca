"""Training: what is refused, each in one line."""

import json

import pytest
import torch

import interp
from interp.tasks import Batch, make
from interp.training.folder import claimed
from tests.tiny_runs import Cancelled, cancel_at, tiny_config, trained


def of_targets(targets, shift=0):
    """A task whose sequences hold 0 … 15, shifted, and are asked what `targets` makes of them."""

    def task(n, generator):
        tokens = shift + torch.arange(16).expand(n, -1)
        return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets(tokens))

    return task


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "whole")


def test_folder_that_holds_a_run_is_refused(run):
    with pytest.raises(FileExistsError, match="is in use"):
        trained(run.path)


def test_folder_that_another_process_writes_to_is_refused(tmp_path):
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
    del described["training"]["loss_precision"]
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
        ({"learning_rate": "a"}, "learning_rate must be a number above 0, got 'a'"),
        ({"learning_rate": None}, "learning_rate must be"),
        ({"learning_rate": True}, "learning_rate must be"),
        ({"learning_rate": float("nan")}, "learning_rate must be"),
        ({"clip_norm": "a"}, "clip_norm must be a number above 0, or None"),
        ({"weight_decay": float("nan")}, "weight_decay must be"),
        ({"final_share": "a"}, r"final_share must be a number in \[0, 1\]"),
        ({"seed": 2**64}, r"seed must be below 2\^64"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"betas": ("a", "b")}, "betas must be two numbers"),
        ({"checkpoint_activations": "no"}, "checkpoint_activations is True or False, got 'no'"),
        ({"compile_model": "x"}, "compile_model is True or False"),
        ({"resume": 1}, "resume is True or False, got 1"),
        ({"device": "cuda:99"}, "no device 'cuda:99' here: want auto, cpu"),
        ({"micro_batch_size": "a"}, "micro_batch_size must be an integer"),
        ({"loss_precision": "float16"}, "loss_precision is one of float32, float64; got 'float16'"),
        ({"loss_precision": None}, "loss_precision is one of float32, float64; got None"),
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'"),
        ({"task": "repeated_token"}, "did you mean repeated_tokens"),
        ({"task": make("running_majority", length=64)}, "n_ctx=16"),
        ({"task": make("text", length=16)}, "d_vocab=17"),
        ({"task": of_targets(lambda t: t - 3)}, "targets -3 … 12, the model d_vocab=17: 0 … 16"),
        ({"task": of_targets(lambda t: t, shift=-2)}, "tokens -2 … 13, the model d_vocab=17"),
        ({"task": of_targets(lambda t: t, shift=2)}, "tokens 2 … 17, the model d_vocab=17"),
        ({"task": of_targets(lambda t: t - 100 - t)}, "asks for nothing"),
        ({"config": tiny_config(d_vocab_out=5)}, "the model d_vocab_out=5: 0 … 4"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(changes, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        trained(tmp_path / "a", **changes)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"config": {"n_layers": 1}}, r"wanted a TransformerConfig, got dict; .*\*\*it"),
        ({"task": lambda n, generator: torch.zeros(n, 4)}, "the task gave Tensor; wanted"),
        ({"task": lambda n, generator: None}, "the task gave NoneType; wanted"),
        ({"task": of_targets(lambda t: t.float())}, r"must be int64.*torch.float32"),
        ({"task": of_targets(lambda t: t.int())}, r"must be int64.*torch.int32"),
        ({"task": 5}, "wanted a task, its name, or a function to a Batch; got 5"),
        ({"progress": "yes"}, "progress is True, False or a callable"),
        ({"progress": None}, "progress is True, False or a callable"),
    ],
)
def test_what_is_of_another_kind_is_said_before_anything_is_written(changes, said, tmp_path):
    with pytest.raises(TypeError, match=said):
        trained(tmp_path / "a", **changes)
    assert not (tmp_path / "a").exists()


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file is a file: choose another name"):
        trained(tmp_path / "file")
    with pytest.raises(ValueError, match="out is the run folder; got ''"):
        trained("")
    with pytest.raises(TypeError, match="a path; got None"):
        trained(None)


@pytest.mark.parametrize("step", ["a", 1.5, True, [1]])
def test_a_step_is_an_integer(step, run):
    for load in (lambda: interp.load(run.path, step=step), lambda: run.load(step)):
        with pytest.raises(TypeError, match="a step is an integer"):
            load()


def test_checkpoint_that_is_not_there_names_the_nearest(run):
    with pytest.raises(FileNotFoundError, match="nearest are 16, 20, 23"):
        interp.load(run.path, step=18)


def test_broken_state_is_said(run, tmp_path):
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10))
    (tmp_path / "a/checkpoints/newest.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="not a whole state"):
        trained(tmp_path / "a", resume=True)
