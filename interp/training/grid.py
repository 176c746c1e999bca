"""Many runs from one file: every combination of some settings, on local processes.

A run that is finished is left alone, one that stopped goes on, one that fails is a row with its
error: the same command again does what is missing.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from interp.runs import read_metrics

Settings = dict[str, Any]
LONGEST_NAME = 32  # of a value; a file system takes 255 bytes for all of them
SEEDED = ("training.seed", "model.init_seed")  # what the axis `seed` sets
SHOWN = ("step", "train_loss", "held_out_loss", "held_out_accuracy")


@dataclass(frozen=True)
class Planned:
    """A run of the table.

    Attributes:
        settings: What sets it apart: `section.name` or `seed`, and the value.
        folder: Where it goes.
        command: What trains it: arguments of Python.
    """

    settings: Settings
    folder: Path
    command: Sequence[str]

    def row(self, *, error: str | None) -> Settings:
        """Its settings, what it measured last, its error, and where it is."""
        try:
            last = (read_metrics(self.folder) or [{}])[-1]
        except ValueError as broken:  # the run could not go on either, and `error` may say so
            last, error = {}, error or str(broken)
        row = self.settings | {name: last.get(name) for name in SHOWN}
        best = [score for score in last.get("max_induction", []) if score is not None]
        row["max_induction"] = max(best, default=None)
        return row | {"error": error, "run": str(self.folder)}


def planned(table: Mapping[str, Sequence[Any]], *, config: Path, out: Path) -> list[Planned]:
    """A run for each combination of the table's values.

    Args:
        table: Values to try by `model.NAME`, `task.NAME`, `training.NAME`, or `seed` (of weights
            and data).
        config: The TOML file that the rest comes from.
        out: The folder of the runs.

    Raises:
        ValueError: The table is empty, a name or its values have another form, or two names set
            one thing.
    """
    if not table:
        raise ValueError(f'{config}: wanted a table "sweep" with lists of values, as seed = [0, 1]')
    for name in SEEDED if "seed" in table else ():
        if name in table:
            raise ValueError(f"sweep: seed sets {name} too: wanted one of the two")
    for name, values in table.items():
        if name != "seed" and "." not in name:
            raise ValueError(f"sweep: wanted seed or section.name, got {name!r}")
        if not isinstance(values, list) or not values:
            raise ValueError(f"sweep.{name}: wanted a list of values, got {values!r}")
        signs = [_sign(value) for value in values]  # which name the folders
        if twice := [x for x, sign in zip(values, signs, strict=True) if signs.count(sign) > 1]:
            raise ValueError(f"sweep.{name}: {twice[0]!r} is named twice; got {values!r}")
    runs = []
    for values in product(*table.values()):
        settings = dict(zip(table, values, strict=True))
        folder = out / ",".join(f"{name}={_sign(value)}" for name, value in settings.items())
        runs.append(Planned(settings, folder, _command(settings, config, folder)))
    return runs


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as `section.name`, which is how TOML reads a dotted key."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    return found


def carried_out(
    runs: Sequence[Planned], *, processes: int, told: Callable[[int, int], None] | None = None
) -> list[Settings]:
    """Do the runs, some at a time, and give a row for each, in the order of `runs`."""
    rows: dict[int, Settings] = {}
    one = partial(row_of, threads=max(1, (os.cpu_count() or 1) // processes))
    with ThreadPoolExecutor(processes) as pool:
        waiting = {pool.submit(one, run): number for number, run in enumerate(runs)}
        try:
            for future in as_completed(waiting):
                rows[waiting[future]] = future.result()
                if told is not None:
                    told(len(rows), len(runs))
        finally:  # after Ctrl-C, those that run were asked to stop too, and save
            pool.shutdown(wait=True, cancel_futures=True)
    return [rows[number] for number in range(len(runs))]


def _command(settings: Settings, config: Path, folder: Path) -> list[str]:
    start = ["-m", "interp", "train", "--config", str(config), "--out", str(folder)]
    return [*start, "--resume", "--no-progress", "--json", *_flags(settings)]


def _flags(settings: Settings) -> Iterator[str]:
    for name, value in settings.items():
        flag = str(value) if name == "seed" else f"{name}={json.dumps(value)}"
        yield from ("--seed" if name == "seed" else "--set", flag)


def _sign(value: Any) -> str:
    """A value as part of a folder's name; a long one by its beginning and a hash."""
    said = "".join(c if c.isalnum() or c in ".-_" else "_" for c in str(value))
    if len(said) <= LONGEST_NAME:
        return said
    return f"{said[:LONGEST_NAME]}-{hashlib.sha256(str(value).encode()).hexdigest()[:8]}"


def row_of(run: Planned, *, threads: int | None = None) -> Settings:
    """Do one run, and give its row.

    Args:
        run: Which; by the Python of this process, which may be on another machine.
        threads: Of torch; None: as the environment says.
    """
    own = [str(Path(__file__).parents[2])]  # where interp lies, be it installed or a checkout
    environment = {"PYTHONPATH": os.pathsep.join([*own, *filter(None, [os.getenv("PYTHONPATH")])])}
    if threads is not None and "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(threads)
    ended = subprocess.run(
        [sys.executable, *run.command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not ended.returncode:
        return run.row(error=None)
    said = ended.stderr.strip().splitlines() or [f"ended with exit code {ended.returncode}"]
    return run.row(error=said[-1].removeprefix("interp train: "))
