"""Peak resident memory of a function, in a process of its own.

    python -m benchmarks.memory benchmarks.head_statistics:forward '{"n": 2048}'

A process's peak never falls again, so every measurement is a fresh interpreter: imports,
weights and all. Two peaks are compared as they are, or after taking off what importing costs.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Peak:
    """What a function returned in its own process, and the most memory that process held."""

    bytes: int
    value: Any


def peak(function: Callable[..., Any], **arguments: Any) -> Peak:
    """Run `function(**arguments)` in a fresh process.

    Args:
        function: A function of a module that can be imported; it builds what it needs.
        arguments: What JSON can carry.

    Raises:
        subprocess.CalledProcessError: The process failed (or was killed for its memory).
    """
    where = f"{function.__module__}:{function.__qualname__}"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", where, json.dumps(arguments)],
        cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    report = json.loads(done.stdout.splitlines()[-1])
    return Peak(report["bytes"], report["value"])


def own_peak() -> int:
    """The most bytes that this process held in memory so far.

    Linux's `ru_maxrss` starts at the size of the process that started this one, so it would
    charge us for our parent; `VmHWM` starts anew with the program.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(where: str, arguments: str) -> None:
    """Call `module:function` with JSON arguments; the last line printed is its report."""
    module, _, name = where.partition(":")
    value = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    print(json.dumps({"bytes": own_peak(), "value": value}))


if __name__ == "__main__":
    main(*sys.argv[1:])
