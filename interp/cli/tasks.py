"""`interp tasks`: what there is to train on."""

from typing import Annotated

import typer

from interp.cli.terminal import print_json


def list_tasks(
    name: Annotated[str | None, typer.Argument(help="Only this one, with its options.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the tasks: a line and an example each."""
    from interp.tasks import TASKS, make

    chosen = [make(name)] if name else [make(each) for each in TASKS]
    found = [
        {
            "name": task.name,
            "description": task.description,
            "example": task.example(),
            "options": task.options,
        }
        for task in chosen
    ]
    if as_json:
        print_json(found)
        return
    for task in found:
        typer.secho(task["name"], bold=True)
        typer.echo(f"  {task['description']}\n  {task['example']}")
        if name:
            typer.echo("  options (--set task.NAME=VALUE):")
            for option, value in task["options"].items():
                typer.echo(f"    {option} = {value!r}")
