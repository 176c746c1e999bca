"""What commands share: errors in one line, tables for people, JSON for programs."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer

BAD_INPUT = (ValueError, LookupError, OSError, FloatingPointError)
TRACEBACK = "INTERP_TRACEBACK"  # set it to see where an error comes from


def one_line(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command, with bad input said in one line and exit code 2, and a stop with its own."""

    @wraps(command)
    def guarded(*args: Any, **options: Any) -> None:
        from interp.training import TrainingStopped

        try:
            command(*args, **options)
        except TrainingStopped as stopped:
            _complain(name, str(stopped))
            raise typer.Exit(128 + stopped.signal) from None
        except BrokenPipeError:  # whoever read our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except BAD_INPUT as error:
            if os.environ.get(TRACEBACK):
                raise
            lost = isinstance(error, ConnectionError)  # of processes, then, any may be the last
            said = error.args[0] if isinstance(error, KeyError) and error.args else error
            _complain(name, " ".join(str(said).split()), always=lost)
            raise typer.Exit(2) from None

    return guarded


@contextmanager
def progress_bar(words: str, *, show: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, as a function of (done, total); None if it is not to be shown."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _complain(name: str, words: str, *, always: bool = False) -> None:
    if os.environ.get("RANK", "0") != "0" and not always:  # of torchrun's processes one speaks
        return
    typer.echo(f"interp {name}: {words}", err=True)


def print_json(value: Any) -> None:
    """A value as JSON on stdout."""
    from interp.results import plain

    typer.echo(json.dumps(plain(value), indent=1, allow_nan=False))


def print_table(
    rows: Sequence[Mapping[str, Any]], *, title: str = "", given: Sequence[str] = ()
) -> None:
    """Rows as a table: columns as in the first row, numbers to the right; no cell is broken.

    Columns that are `given`, not measured, are not rounded to two decimals.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.padding = (0, 1, 0, 0)
    cells = [[_cell(x, exact=name in given) for name, x in row.items()] for row in rows]
    for column, name in enumerate(rows[0] if rows else ()):
        number = isinstance(rows[0][name], int | float)
        width = max(len(name), *(len(row[column]) for row in cells))
        table.add_column(name, justify="right" if number else "left", min_width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console()
    console.print(table, width=max(console.width, console.measure(table).minimum), crop=False)


def _cell(value: Any, *, exact: bool = False) -> str:
    if value is None or value != value:
        return "–"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.6g}" if exact else f"{value:.2f}"
