"""How a run shows where it is: a bar for people, or a call for programs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Progress = bool | Callable[[int, int], None]


class Report(Protocol):
    """Told after a step: steps done, tokens seen so far, the loss now."""

    def __call__(self, step: int, tokens: int, loss: float) -> None:
        """Show it."""
        ...


@contextmanager
def shown(progress: Progress, name: str, *, steps: int) -> Iterator[Report]:
    """What to call after a step: a bar with loss, tokens a second and time left, or nothing.

    A callable is given (steps done, steps).
    """
    if progress is False:
        yield lambda step, tokens, loss: None
    elif progress is True:
        with _bar(name, steps) as report:
            yield report
    else:
        yield lambda step, tokens, loss: progress(step, steps)


@contextmanager
def _bar(name: str, steps: int) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f} · {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=steps, loss=float("nan"), rate=0.0)
        begun: list[tuple[float, int]] = []

        def report(step: int, tokens: int, loss: float) -> None:
            begun.append((time.perf_counter(), tokens)) if not begun else None
            seconds = time.perf_counter() - begun[0][0]
            rate = (tokens - begun[0][1]) / seconds if seconds else 0.0
            bar.update(task, completed=step, loss=loss, rate=rate)

        yield report
