"""`interp demo`: train, find the heads, knock them out, and write it down."""

from pathlib import Path
from typing import Annotated

import typer

from interp.cli.analyze import analysed, show
from interp.cli.terminal import print_json


def run_demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Of the weights and of the data.")] = 0,
    progress: Annotated[bool, typer.Option(help="Show bars.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train two small models, find out which heads do what, and write reports.

    Two layers on repeated random tokens, until induction heads form; and one layer that takes the
    majority so far, whose head is near-uniform and essential. What was trained before is kept.
    """
    from interp.report import verdict
    from interp.training.recipes import induction, majority

    places = {out: induction(), out.with_name(f"{out.name}-majority"): majority()}
    found = {}
    for place, recipe in places.items():
        run = recipe.train(place, seed=seed, resume=True, progress=progress)
        found[place] = analysed(run.path, progress=progress)
    if as_json:
        print_json(
            {str(p): {"verdict": verdict(f), "report": page} for p, (f, page) in found.items()}
        )
        return
    for findings, page in reversed(found.values()):
        show(findings, page)
    typer.echo(f"next: interp dashboard {out}")
    typer.echo("      interp train --help, interp tasks, interp analyze --help")
