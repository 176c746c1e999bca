"""Checkpointed activations: peak memory and time of training, with them and without.

Steps of the loop behind `interp.train`, in a process of their own; the peak is taken less that of
a process that has built the same model and trained nothing, so it holds the optimiser's averages
and gradients too. Losses must be equal to the last bit.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

import interp
from benchmarks import peers
from benchmarks.memory import peak
from benchmarks.record import Check, Measurement
from interp.tasks import make
from interp.training import TrainingOptions
from interp.training.trainer import Trainer
from interp.training.workers import Workers

SIZE = peers.Size(n_layers=8, n_heads=4, d_model=64, d_vocab=64, n_ctx=512, batch=32)
QUICK = peers.Size(n_layers=2, n_heads=2, d_model=16, d_vocab=11, n_ctx=8, batch=2)
STEPS = 2
THRESHOLD = "MALLOC_MMAP_THRESHOLD_"
LIMIT = 0.5  # of the memory that training takes beside the model


def measure(*, quick: bool = False, **how: Any) -> Iterator[Measurement]:
    """One comparison of peaks."""
    size = QUICK if quick else SIZE
    sizes = asdict(size)
    with _freed_at_once():
        idle = peak(trained, size=sizes, steps=0, checkpointed=False)
        peaks = {
            name: peak(trained, size=sizes, steps=STEPS, checkpointed=name == "checkpointed")
            for name in ("kept", "checkpointed")
        }
    if peaks["kept"].value["loss"] != peaks["checkpointed"].value["loss"]:
        raise AssertionError(f"the two runs differ: {peaks}")
    beside = {name: (p.bytes - idle.bytes) / 2**20 for name, p in peaks.items()}
    ratio = beside["checkpointed"] / max(beside["kept"], 1e-9)
    yield Measurement(
        name=f"activations of training · {size}",
        settings=sizes | {"steps": STEPS},
        unit="MiB",
        baseline="kept",
        medians=beside,
        ratios={"kept": 1.0, "checkpointed": ratio},
        samples={name: [x] for name, x in beside.items()},
        checks=[Check(f"{size}, checkpointed over kept", ratio, at_most=LIMIT)],
        notes={
            "model_and_imports_mib": idle.bytes / 2**20,
            "seconds": {name: p.value["seconds"] for name, p in peaks.items()},
        },
    )


@contextmanager
def _freed_at_once() -> Iterator[None]:
    """Processes that begin inside give memory back when it is freed.

    glibc would keep and scatter it, and a peak be of what was once held in pieces.
    """
    before = os.environ.get(THRESHOLD)
    os.environ[THRESHOLD] = str(1 << 16)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THRESHOLD]
        else:
            os.environ[THRESHOLD] = before


def trained(size: dict[str, int], steps: int, checkpointed: bool) -> dict[str, float]:
    """Make some steps, or none; the loss of the last, and the seconds that they took."""
    torch.set_num_threads(1)
    sizes: dict[str, Any] = {name: x for name, x in size.items() if name != "batch"}
    config = interp.TransformerConfig(**sizes, d_mlp=4 * size["d_model"])
    task = make("repeated_tokens", vocab=config.d_vocab - 1, length=config.n_ctx)
    trainer = Trainer(
        interp.Transformer(config),
        task.batch,
        TrainingOptions(batch_size=size["batch"]),
        workers=Workers(0, 1, torch.device("cpu")),
        checkpoint_activations=checkpointed,
    )
    begun = time.perf_counter()
    for _ in range(steps):
        trainer.advance()
    loss, _, _ = trainer.window.means()
    return {"loss": loss or 0.0, "seconds": time.perf_counter() - begun}
