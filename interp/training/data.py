"""Where batches come from: a task by name, a task that was made, or a function."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from interp.config import TransformerConfig
from interp.metrics import UNSCORED
from interp.tasks import Batch, Task

Draw = Callable[[int, torch.Generator], Batch]


@dataclass(frozen=True)
class Source:
    """What is trained on.

    Attributes:
        train: Draws a batch.
        held_out: Draws one that shares no sequence with training; None for a function.
        described: What config.json says of it.
    """

    train: Draw
    held_out: Draw | None
    described: dict[str, Any]


def source_of(task: Task | Draw) -> Source:
    """The source that a caller gave.

    Raises:
        TypeError: It is no task and no function.
    """
    if not isinstance(task, Task) and not callable(task):
        raise TypeError(f"wanted a task, its name, or a function to a Batch; got {task!r}")
    if isinstance(task, Task):
        described = {"name": task.name, "options": task.options}
        return Source(task.batch, partial(task.batch, split="held_out"), described)
    name = getattr(task, "__qualname__", type(task).__qualname__)
    return Source(task, None, {"name": f"{task.__module__}.{name}"})


def check_fit(config: TransformerConfig, task: Task | Draw, batch: Batch) -> None:
    """Refuse a task that the model can't be trained on, before anything is written.

    Raises:
        TypeError: It gives no Batch.
        ValueError: Its tokens or lengths don't fit the model; nothing is asked; or it wants an
            encoder.
    """
    if not isinstance(batch, Batch):
        raise TypeError(
            f"the task gave {type(batch).__name__}; wanted an interp.tasks.Batch of tokens, mask "
            "and targets"
        )
    if batch.source is not None:
        raise ValueError("this task gives pairs for an encoder; train wants one sequence each")
    d_vocab, n_ctx = 1 + max(int(batch.tokens.max()), int(batch.targets.max())), len(batch.tokens.T)
    if isinstance(task, Task):
        d_vocab, n_ctx = task.d_vocab, task.n_ctx
    if d_vocab > config.d_vocab:
        raise ValueError(f"the task has {d_vocab} tokens, the model d_vocab={config.d_vocab}")
    if n_ctx > config.n_ctx:
        raise ValueError(f"the task has {n_ctx} positions, the model n_ctx={config.n_ctx}")
    if not bool((batch.targets != UNSCORED).any()):
        raise ValueError("the task asks for nothing: all targets are −100")
