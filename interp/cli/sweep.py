"""`interp sweep`: many seeds and settings, as one table of runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from interp.cli.terminal import print_json, print_table, progress_bar


def sweep_runs(
    config: Annotated[
        Path, typer.Argument(help="TOML: tables model, task, training, and sweep with lists.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; else runs/ and the file's name.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    progress: Annotated[bool, typer.Option(help="Show a bar.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train every combination of the values in [sweep], and print one table.

    A failed run is a row with its error (and the exit code is then 1). The same command again
    does what is missing.
    """
    from interp.cli.settings import sections_of_file
    from interp.results import plain, write_atomic
    from interp.training.grid import carried_out, flat, planned

    sections = sections_of_file(config, beside=("sweep",))
    table = flat(sections.pop("sweep", {}))
    folder = out or Path("runs") / config.stem
    base = folder / "base.json"
    runs = planned(table, config=base, out=folder)
    write_atomic(base, json.dumps(sections))
    with progress_bar(f"sweep of {len(runs)} runs", show=progress) as told:
        rows = carried_out(runs, processes=processes, told=told)
    write_atomic(folder / "sweep.json", json.dumps(plain(rows), indent=1) + "\n")
    if as_json:
        print_json(rows)
    else:
        print_table(rows, title=str(folder))
    if any(row["error"] for row in rows):
        raise typer.Exit(1)
