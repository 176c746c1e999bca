"""Where batches come from: a task by name, a task that was made, or a function."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

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
        TypeError: It gives no Batch, or one of numbers that are no ids.
        ValueError: Its tokens, targets or lengths don't fit the model; nothing is asked; or it
            wants an encoder.
    """
    if not isinstance(batch, Batch):
        raise TypeError(
            f"the task gave {type(batch).__name__}; wanted an interp.tasks.Batch of tokens, mask "
            "and targets"
        )
    if batch.source is not None:
        raise ValueError("this task gives pairs for an encoder; train wants one sequence each")
    if batch.targets.dtype != torch.int64 or batch.tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            "the task's tokens and targets must be int64 (tokens.long()), got "
            f"{batch.tokens.dtype} and {batch.targets.dtype}"
        )
    n_ctx = len(batch.tokens.T)
    if isinstance(task, Task):
        n_ctx = task.n_ctx
        if task.d_vocab > config.d_vocab:
            raise ValueError(
                f"the task has {task.d_vocab} tokens, the model d_vocab={config.d_vocab}"
            )
    if n_ctx > config.n_ctx:
        raise ValueError(f"the task has {n_ctx} positions, the model n_ctx={config.n_ctx}")
    asked = batch.targets[batch.targets != UNSCORED]
    if not len(asked):
        raise ValueError("the task asks for nothing: all targets are −100")
    _check_range("tokens", batch.tokens, f"d_vocab={config.d_vocab}", config.d_vocab)
    outputs = "d_vocab" if config.d_vocab_out is None else "d_vocab_out"
    _check_range("targets", asked, f"{outputs}={config.vocab_out}", config.vocab_out)


def _check_range(name: str, numbers: Tensor, known: str, end: int) -> None:
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= end:
        raise ValueError(f"the task has {name} {low} … {high}, the model {known}: 0 … {end - 1}")
