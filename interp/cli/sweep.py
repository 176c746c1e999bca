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
    processes: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time here; by default 1.")
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="On the Ray cluster of RAY_ADDRESS, or one begun here.")
    ] = False,
    cpus: Annotated[float | None, typer.Option(min=0, help="With --ray: cores a run; 1.")] = None,
    gpus: Annotated[float | None, typer.Option(min=0, help="With --ray: GPUs a run; 0.")] = None,
    progress: Annotated[bool, typer.Option(help="Show a bar.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train every combination of the values in the table "sweep", and print one table.

    A failed run is a row with its error (and the exit code is then 1). The same command again
    does what is missing. With --ray, each run is a task, and the folder must be one that all nodes
    see.
    """
    if ray and processes is not None:
        raise ValueError("--processes is of local runs; with --ray, say what a run needs: --cpus")
    if not ray and (cpus is not None or gpus is not None):
        raise ValueError("--cpus and --gpus say what a run needs of a cluster: give --ray too")
    from interp.cli.settings import check_axes, sections_of_file
    from interp.results import plain, write_atomic
    from interp.training.cluster import carried_out_on_ray
    from interp.training.grid import carried_out, flat, planned

    sections = sections_of_file(config, beside=("sweep",))
    table = flat(sections.pop("sweep", {}))
    folder = out or Path("runs") / config.stem
    folder = folder.resolve() if ray else folder  # workers stand elsewhere
    base = folder / "base.json"
    runs = planned(table, config=base, out=folder)
    check_axes(table, sections)
    write_atomic(base, json.dumps(sections))
    with progress_bar(f"sweep of {len(runs)} runs", show=progress) as told:
        if ray:
            needs = {"cpus": 1.0 if cpus is None else cpus, "gpus": gpus or 0.0}
            rows = carried_out_on_ray(runs, told=told, **needs)
        else:
            rows = carried_out(runs, processes=processes or 1, told=told)
    write_atomic(folder / "sweep.json", json.dumps(plain(rows), indent=1) + "\n")
    if as_json:
        print_json(rows)
    else:
        print_table(rows, title=str(folder), given=list(table))
    if any(row["error"] for row in rows):
        raise typer.Exit(1)
