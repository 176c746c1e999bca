"""What a report is about: a model, and sequences to look at it on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from interp.metrics import next_token_targets
from interp.model import Transformer
from interp.probes.induction import room_of
from interp.probes.sequences import SHORTEST
from interp.runs import Run, load
from interp.tasks import Batch, RepeatedTokens, Task, make

SEQUENCES = 128
SEED = 2**32 + 2  # of what is looked at: not that of training's own evaluations


@dataclass(frozen=True)
class Subject:
    """A model, and what it is shown.

    Attributes:
        name: Of the run.
        run: Its folder; None where there is a model but no run.
        model: The model, in eval mode.
        batch: Held-out sequences of its task.
        reference: Training sequences: what means are taken over.
        repeats: Repeated random tokens, scored wherever the token at hand occurred before; None if
            the model has no room for them.
        repeats_reference: Others of the same kind.
        periods: Lengths of the repeated blocks.
        withheld: Whether training never saw these periods, but shorter and longer ones.
        labels: The name of each token.
        metrics: Training's measurements.
        described: The run's config.json.
        step: Of the checkpoint.
        shown: What `batch` holds, in words.
    """

    name: str
    run: Run | None
    model: Transformer
    batch: Batch
    reference: Batch
    repeats: Batch | None
    repeats_reference: Batch | None
    periods: tuple[int, ...]
    withheld: bool
    labels: tuple[str, ...]
    metrics: list[dict[str, Any]]
    described: dict[str, Any]
    step: int | None
    shown: str = "held-out sequences"

    @property
    def folder(self) -> Path | None:
        """The run's; None where there is no run."""
        return None if self.run is None else self.run.path


def subject_of(path: str | Path, *, step: int | None = None) -> Subject:
    """A run's newest model, or that of a checkpoint, with sequences of its task.

    Raises:
        FileNotFoundError: There is no such folder or checkpoint.
        ValueError: It is no run, or one whose task is a function of somebody's own.
    """
    run = Run(path)
    model = load(run.path, step=step)
    task = run.task
    periods, withheld = periods_of(model, task)
    draw = torch.Generator().manual_seed(SEED)
    batch, reference = (task.batch(SEQUENCES, draw, split=split) for split in ("held_out", "train"))
    return Subject(
        name=run.path.name or str(run.path.resolve().name),
        run=run,
        model=model,
        batch=batch,
        reference=reference,
        repeats=_repeats(model, task, periods, draw),
        repeats_reference=_repeats(model, task, periods, draw),
        periods=periods,
        withheld=withheld,
        labels=task.labels,
        metrics=run.metrics,
        described=run.described,
        step=step if step is not None else _newest_step(run),
    )


def periods_of(model: Transformer, task: Task) -> tuple[tuple[int, ...], bool]:
    """Periods to look for induction at, and whether training never saw them."""
    if isinstance(task.config, RepeatedTokens) and task.config.withheld_periods:
        return task.config.withheld_periods, True
    room = room_of(model)
    # One more token than the shortest block, so that the control can have another period.
    return (room.default_periods() if room.longest > SHORTEST else ()), False


def _repeats(
    model: Transformer, task: Task, periods: tuple[int, ...], draw: torch.Generator
) -> Batch | None:
    """The task's own held-out repeats if it has them, else blocks of random tokens."""
    if not periods:
        return None
    if isinstance(task.config, RepeatedTokens):
        scored = make(task.name, **{**task.options, "scored": "repeats"})
        return scored.batch(SEQUENCES, draw, split="held_out")
    return repeats_of_random_tokens(model, periods, draw)


def repeats_of_random_tokens(
    model: Transformer, periods: tuple[int, ...], draw: torch.Generator
) -> Batch:
    """Blocks of random tokens, repeated at each of these periods."""
    room, n = room_of(model), -(-SEQUENCES // len(periods))
    length = room.length(periods)
    tokens = [room.repeated(p, n=n, length=length, generator=draw) for p in periods]
    return repeats_batch(torch.cat(tokens))


def repeats_batch(tokens: Int[Tensor, "batch pos"]) -> Batch:
    """Sequences whose next token is asked for wherever the token at hand occurred before."""
    targets = next_token_targets(tokens)
    seen = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).any(-1)
    real = torch.ones_like(tokens, dtype=torch.bool)
    return Batch(tokens, real, targets.masked_fill(~seen, -100))


def _newest_step(run: Run) -> int | None:
    rows = run.metrics
    return int(rows[-1]["step"]) if rows else None
