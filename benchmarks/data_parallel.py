"""Two processes against one, a core each: steps per second at the same global batch.

Processes are those that `torchrun … interp train` starts. Their rate is read from the run's own
clock (its `seconds` are those of steps), behind the first steps and without the evaluations.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks import peers
from benchmarks.load import Meter
from benchmarks.record import ROOT, Check, Measurement
from interp.runs import read_metrics

SIZES = (  # with the steps between which the clock is read
    (peers.Size(n_layers=2, n_heads=4, d_model=64, d_vocab=64, n_ctx=64, batch=64), (20, 100)),
    (peers.Size(n_layers=4, n_heads=8, d_model=256, d_vocab=512, n_ctx=128, batch=16), (4, 24)),
)
QUICK = ((peers.Size(n_layers=1, n_heads=2, d_model=16, d_vocab=11, n_ctx=8, batch=2), (2, 4)),)
LIMIT = 1.7


def measure(*, quick: bool = False, rounds: int = 5, **how: Any) -> Iterator[Measurement]:
    """Both sizes: the demo's with an MLP, and one whose gradients are 13 MB."""
    for size, between in QUICK if quick else SIZES:
        yield _compare(size, between, rounds=1 if quick else rounds)


def _compare(size: peers.Size, between: tuple[int, int], *, rounds: int) -> Measurement:
    """One and two processes in turns; what others used of the machine meanwhile is in the notes."""
    first, last = between
    rates: dict[str, list[float]] = {"1 process": [], "2 processes": []}
    loads: list[tuple[float, bool]] = []
    for _ in range(rounds):
        meter = Meter()
        for n, name in enumerate(rates, 1):
            rates[name].append(steps_per_second(size, processes=n, first=first, last=last))
        loads.append(meter.read())
    ratio = statistics.median(b / a for a, b in zip(*rates.values(), strict=True))
    return Measurement(
        name=f"data parallelism, one core each · {size}",
        settings=asdict(size) | {"steps": between},
        unit="steps/s",
        baseline="1 process",
        medians={name: statistics.median(x) for name, x in rates.items()},
        ratios={"1 process": 1.0, "2 processes": ratio},
        samples=rates,
        notes={
            "calm": not any(disturbed for _, disturbed in loads),
            "foreign_cores": [round(foreign, 3) for foreign, _ in loads],
        },
        checks=[Check(f"{size}, steps of 2 processes over 1", ratio, at_least=LIMIT)],
    )


def steps_per_second(size: peers.Size, *, processes: int, first: int, last: int) -> float:
    """Of a run from step `first` to `last`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "interp", "train", "--out", folder, *_flags(size, last)]
        command += ["--set", f"training.evaluate_every={first}"]
        started = [
            subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
            for env in _environments(processes)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"training in {processes} processes ended with {codes}")
        seconds = {line["step"]: line["seconds"] for line in read_metrics(folder)}
    return (last - first) / (seconds[last] - seconds[first])


def _environments(processes: int) -> Iterator[dict[str, str]]:
    """As torchrun gives them, with a core each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    shared |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for rank in range(processes):
        yield os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}


def _flags(size: peers.Size, steps: int) -> list[str]:
    model = {"n_layers": size.n_layers, "n_heads": size.n_heads, "d_model": size.d_model}
    model |= {"d_mlp": 4 * size.d_model}
    task = {"vocab": size.d_vocab - 1, "length": size.n_ctx, "max_period": size.n_ctx // 2}
    training = {"steps": steps, "batch_size": size.batch, "evaluation_size": 2}
    training |= {"checkpoints_per_octave": 0}
    tables = {"model": model, "task": task, "training": training}
    pairs = [f"{t}.{name}={x}" for t, values in tables.items() for name, x in values.items()]
    return ["--no-progress", "--device", "cpu", *(x for pair in pairs for x in ("--set", pair))]
