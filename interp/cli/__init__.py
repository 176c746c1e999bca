"""The command line: `interp demo`, `train`, `analyze`, `convert`, …; one file a command."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from interp.cli.analyze import write_report
from interp.cli.convert import convert_model
from interp.cli.dashboard import open_dashboard
from interp.cli.demo import run_demo
from interp.cli.sweep import sweep_runs
from interp.cli.tasks import list_tasks
from interp.cli.terminal import one_line
from interp.cli.train import attention_kinds, train_run

app = typer.Typer(
    name="interp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which heads of a transformer do what, and what happens without them.",
)
COMMANDS = {
    "demo": run_demo,
    "train": train_run,
    "sweep": sweep_runs,
    "analyze": write_report,
    "dashboard": open_dashboard,
    "tasks": list_tasks,
    "convert": convert_model,
}
for _name, _command in COMMANDS.items():
    _end = attention_kinds() if _name == "train" else None
    app.command(_name, epilog=_end)(one_line(_name, _command))

# What typer raises on bad usage; its name and module differ between versions.
_USAGE: type[Exception] = typer.BadParameter.__mro__[1]


def _print_version(asked: bool) -> None:
    if asked:
        import interp

        typer.echo(interp.__version__)
        raise typer.Exit


VERSION = typer.Option(
    "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
)


@app.callback()
def options(version: Annotated[bool, VERSION] = False) -> None:
    """Which heads of a transformer do what, and what happens without them."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; the exit code is 0, 2 on bad input, 128 + n when signal n stopped it."""
    try:
        code = app(list(arguments), prog_name="interp", standalone_mode=False)
    except _USAGE as error:
        bad_value = isinstance(error, typer.BadParameter)  # only its long form names the option
        said = error.format_message() if bad_value else str(error)
        said = " ".join(said.split()) or "wanted a command"  # where there is none, it says nothing
        typer.echo(f"interp: {said} (try interp --help)", err=True)
        return 2
    return code if isinstance(code, int) else 0


def main() -> None:
    """What the `interp` command calls."""
    sys.exit(run(sys.argv[1:]))
