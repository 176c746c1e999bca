"""Training that scales: parts of a batch, lower precision, several processes, one result."""

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import interp
from interp.runs import checkpoint_steps
from interp.tasks import Batch
from interp.training.workers import Workers
from tests.tiny import some_tokens, tiny
from tests.tiny_runs import Cancelled, cancel_at, same_weights, tiny_config, trained, untimed

ROOT = Path(__file__).parents[1]
TINY = [
    *("--layers", "1", "--heads", "2", "--d-model", "16", "--batch-size", "5"),
    *("--set", "task.vocab=16", "--set", "task.length=16", "--set", "task.max_period=6"),
    *("--set", "training.evaluation_size=4", "--set", "training.checkpoints_per_octave=1"),
    *("--set", "training.evaluate_every=4", "--device", "cpu", "--no-progress"),
]


def padded(n, generator):
    """Sequences of very different numbers of targets."""
    tokens = torch.randint(0, 16, (n, 12), generator=generator)
    mask = torch.arange(12) < torch.randint(2, 13, (n, 1), generator=generator)
    return Batch(tokens, mask, tokens.roll(1, 1).masked_fill(~mask, -100))


def losses(run):
    return [line["train_loss"] for line in run.metrics[1:]]


# --- parts of a batch ----------------------------------------------------------------------


def test_parts_of_a_batch_add_up_to_its_gradient(tmp_path):
    # Rounding of sums in another order, over 24 steps; a mean of means differs by 0.1 and more.
    whole = trained(tmp_path / "whole", task=padded)
    parts = trained(tmp_path / "parts", task=padded, micro_batch_size=3)
    assert losses(parts) == pytest.approx(losses(whole), abs=1e-4)
    assert not same_weights(parts.model, interp.Transformer(tiny_config()))


# --- activations made again ----------------------------------------------------------------

STEERING = {
    "steer": [{"statistic": "entropy", "weight": 0.1, "layers": [1]}],
    "clamps": [{"to": "previous_token", "heads": [[0, 1]]}],
}


@pytest.mark.parametrize("options", [{}, STEERING, {"precision": "bfloat16"}])
def test_checkpointed_activations_change_no_weight(options, tmp_path):
    config = tiny_config(dropout=0.3, d_mlp=8)
    plain = trained(tmp_path / "plain", config, **options)
    again = trained(tmp_path / "again", config, checkpoint_activations=True, **options)
    assert same_weights(again.model, plain.model)
    assert untimed(again.metrics) == untimed(plain.metrics)


def test_checkpointing_keeps_what_enters_blocks_and_little_else():
    model, tokens = tiny("mlp", n_layers=6), some_tokens()

    def kept(**how):
        sizes = {}

        def pack(x):
            sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            model(tokens, return_type="loss", **how)
        return sum(sizes.values())

    # Blocks save nothing but their inputs, which these hooks don't see: [3 12 32] in float32.
    inputs = 6 * 3 * 12 * 32 * 4
    assert kept(checkpoint_activations=True) + inputs < kept() / 3


def test_hooks_act_in_a_checkpointed_call_and_a_kv_cache_is_refused():
    model, tokens = tiny("mlp"), some_tokens()
    hooks = [("blocks.0.attn.hook_pattern", lambda x, hook: x.roll(1, 1))]
    found = []
    for checkpointed in (False, True):
        model.zero_grad()
        how = {"hooks": hooks, "checkpoint_activations": checkpointed}
        model(tokens, return_type="loss", **how).backward()
        found.append([weight.grad.clone() for weight in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    with pytest.raises(ValueError, match="can't be extended twice"):
        model(tokens, kv_cache=model.new_kv_cache(), checkpoint_activations=True)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_compiled_run_learns_what_an_eager_one_does(checkpointed, tmp_path, monkeypatch):
    # The graph that is traced, with its gradients; torch's code generator takes half a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    config, how = tiny_config(d_mlp=8), {"checkpoint_activations": checkpointed}
    eager = trained(tmp_path / "eager", config, **how)
    torch._dynamo.utils.counters.clear()
    compiled = trained(tmp_path / "compiled", config, compile_model=True, **how)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    assert not torch._dynamo.utils.counters["graph_break"]
    assert losses(compiled) == pytest.approx(losses(eager), abs=1e-4)
    assert interp.load(compiled.path).config == config


# --- lower precision -----------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_learns_keeps_float32_weights_and_resumes(precision, tmp_path):
    whole = trained(tmp_path / "whole", precision=precision)
    full = trained(tmp_path / "full")
    assert {x.dtype for x in whole.model.parameters()} == {torch.float32}
    assert losses(whole) != losses(full)
    assert losses(whole) == pytest.approx(losses(full), abs=0.1)
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", precision=precision, progress=cancel_at(10))
    resumed = trained(tmp_path / "a", precision=precision, resume=True)
    assert same_weights(resumed.model, whole.model)
    assert untimed(resumed.metrics) == untimed(whole.metrics)


def test_precision_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match="precision is one of float32, bfloat16, float16"):
        trained(tmp_path / "a", precision="int8")


# --- processes -----------------------------------------------------------------------------


OVERLAPPED = """
import sys
from interp.cli import run
from interp.training import workers
workers.OVERLAPPING = ("cpu", "cuda")
sys.exit(run(sys.argv[1:]))
"""  # as on GPUs


def started(out, *arguments, size, overlapped=False):
    """`interp train` in some processes, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    program = ["-c", OVERLAPPED] if overlapped else ["-m", "interp"]
    command = [sys.executable, *program, "train", "--out", str(out), *TINY, *arguments]
    environments = [
        os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        for rank in range(size)
    ]
    return [
        subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        for env in environments
    ]


def ended(processes):
    said = [process.communicate(timeout=180)[1] for process in processes]
    return [process.returncode for process in processes], said


STEERED = [
    *("--set", 'training.steer=[{"statistic": "induction", "weight": -0.5}]'),
    *("--set", 'training.clamps=[{"to": "zero", "hook": "hook_embed"}]'),
]


@pytest.mark.parametrize("overlapped", [False, True], ids=["behind", "overlapped"])
@pytest.mark.parametrize("steering", [[], STEERED], ids=["plain", "steered"])
def test_two_processes_learn_what_one_does(steering, overlapped, tmp_path):
    from interp.cli import run as cli

    one, two, asked = tmp_path / "one", tmp_path / "two", ["--steps", "12", *steering]
    again = ["--checkpoint-activations"] if steering else []
    codes, said = ended(started(two, *asked, *again, size=2, overlapped=overlapped))
    assert codes == [0, 0], said
    assert cli(["train", "--out", str(one), *TINY, *asked]) == 0
    # Five sequences on two processes: shares of three and two, weighted by their targets.
    runs = interp.Run(one), interp.Run(two)
    assert losses(runs[1]) == pytest.approx(losses(runs[0]), abs=1e-4)
    penalties = [[line.get("penalty", 0.0) for line in run.metrics[1:]] for run in runs]
    assert penalties[1] == pytest.approx(penalties[0], abs=1e-4)


def test_two_processes_go_on_with_what_one_began(tmp_path):
    from interp.cli import run as cli

    whole, began = tmp_path / "whole", tmp_path / "began"
    assert cli(["train", "--out", str(whole), *TINY, "--steps", "20"]) == 0
    run = interp.Run(whole)
    options = run.described["training"]
    with pytest.raises(Cancelled):
        interp.train(run.model.config, run.task, out=began, progress=cancel_at(10), **options)
    assert interp.Run(began).metrics[-1]["step"] <= 10
    codes, said = ended(started(began, "--steps", "20", "--resume", size=2))
    assert codes == [0, 0], said
    assert interp.Run(began).finished
    assert losses(interp.Run(began)) == pytest.approx(losses(run), abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_processes_share_a_batch_and_nothing_is_drawn_twice(size):
    batch = padded(7, torch.Generator().manual_seed(0))
    cpu = torch.device("cpu")
    shares = [Workers(rank, size, cpu).share(batch) for rank in range(size)]
    rows = [tuple(row.tolist()) for share in shares for row in share.tokens]
    assert sorted(rows) == sorted(tuple(row.tolist()) for row in batch.tokens)
    assert len(set(rows)) == 7
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def until_saved(out, processes, step=8):
    deadline = time.monotonic() + 120
    while not checkpoint_steps(out) or checkpoint_steps(out)[-1] < step:
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.1)


def test_lost_process_ends_the_run_with_a_message_and_one_process_goes_on(tmp_path):
    out = tmp_path / "a"
    processes = started(out, "--steps", "100000", size=2)
    until_saved(out, processes)
    processes[1].kill()
    codes, said = ended(processes)
    assert codes[0] == 2
    assert "interp train: process 0 of 2 lost another one; the run goes on" in said[0]
    run = interp.Run(out)
    config, task = interp.load(out).config, run.task
    options = run.described["training"]
    with pytest.raises(Cancelled):
        interp.train(config, task, out=out, resume=True, progress=cancel_at(10), **options)
    assert interp.Run(out).metrics[-1]["step"] >= 8


def test_a_signal_to_one_process_stops_all_and_the_run_is_saved(tmp_path):
    out = tmp_path / "a"
    processes = started(out, "--steps", "100000", size=2)
    until_saved(out, processes)
    processes[1].terminate()
    codes, said = ended(processes)
    assert codes == [128 + signal.SIGTERM] * 2, said
    assert "is saved, and goes on with resume=True" in said[0]
    assert not interp.Run(out).finished
