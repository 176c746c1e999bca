"""Run the benchmarks: `python -m benchmarks [NAME …] [--quick] [--busy]`.

Each runs in a process of its own, prints its ratios against the limits that they should keep,
and leaves every sample in benchmarks/results. A limit that is not met, or a benchmark that
ends with an error, is said; the exit code stays 0.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks import (
    ablation_sweep,
    attention_kinds,
    checkpointing,
    dashboard,
    data_parallel,
    head_statistics,
    import_time,
    model_speed,
    record,
    training,
)
from benchmarks.record import ROOT, Measurement

RESULTS = ROOT / "benchmarks" / "results"
QUICK_RESULTS = ROOT / "runs" / "benchmarks"  # not kept: tiny sizes say nothing about speed


def main(arguments: list[str] | None = None) -> None:
    """Run what was named, or everything."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if args.only and (len(args.names) != 1 or args.names[0] not in IN_PARTS):
        parser.error(f"--only goes with {' or '.join(IN_PARTS)}, alone")
    out = args.out or (QUICK_RESULTS if args.quick else RESULTS)
    if len(args.names) == 1:
        run(args.names[0], quick=args.quick, how=_how(args), out=out)
        return
    told = sys.argv[1:] if arguments is None else arguments
    given = [argument for argument in told if argument not in args.names]
    for name in args.names or BENCHMARKS:
        done = subprocess.run([sys.executable, "-m", "benchmarks", name, *given], check=False)
        if done.returncode:
            print(f"{name} ended with exit code {done.returncode}; see above", file=sys.stderr)


def _how(args: argparse.Namespace) -> dict[str, Any]:
    """What was asked of `interleave`."""
    how: dict[str, Any] = {"patience": args.patience}
    if args.only:
        how["only"] = args.only
    if args.busy:
        torch.set_num_threads(1)
        how["clock"] = "processor"
    return how if args.rounds is None else how | {"rounds": args.rounds}


def run(name: str, *, quick: bool, how: dict[str, Any], out: Path) -> None:
    """Run one benchmark here, print it and save it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    console = Console()
    console.rule(name)
    measurements: list[Measurement] = []
    for measurement in BENCHMARKS[name](quick=quick, **how):
        measurements.append(measurement)
        record.show(measurement, console=console)
        path = record.save(name, measurements, folder=out, add="only" in how)
    console.print(f"All samples: {path}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all")
    parser.add_argument(
        "--patience",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long each comparison waits for others to leave the machine",
    )
    parser.add_argument("--rounds", type=int, help="rounds that count, instead of each's own")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="one thread, in processor time: for a machine that others never leave",
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help="sizes whose name contains it; the others in the file are kept",
    )
    parser.add_argument("--out", type=Path, help="folder for the JSON files")
    return parser


IN_PARTS = ("ablation_sweep", "head_statistics")
"""Those whose sizes can be run one at a time."""

BENCHMARKS: dict[str, Callable[..., Iterator[Measurement]]] = {
    "import_time": import_time.measure,
    "model_speed": model_speed.measure,
    "ablation_sweep": ablation_sweep.measure,
    "attention_kinds": attention_kinds.measure,
    "head_statistics": head_statistics.measure,
    "dashboard": dashboard.measure,
    "training": training.measure,
    "data_parallel": data_parallel.measure,
    "checkpointing": checkpointing.measure,
}

if __name__ == "__main__":
    main()
