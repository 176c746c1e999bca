"""What `import interp` adds to `import torch`, and whether it loads what it should not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.memory import ROOT
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import Action, interleave

HEAVY = ("transformers", "transformer_lens", "streamlit", "pandas", "plotly")
SECONDS = 0.5


def measure(*, quick: bool = False, **how: Any) -> Iterator[Measurement]:
    """Start Python with torch, and with torch and interp, in turns."""
    programs = {"import torch": "import torch", "import torch, interp": "import torch, interp"}
    budget = {"rounds": 1, "warmup": 0} if quick else {"rounds": 11, "warmup": 1}
    actions = {name: _program(code) for name, code in programs.items()}
    timing = interleave(actions, **budget | {"shortest": 0.0} | how)
    added = timing.difference("import torch, interp", "import torch")
    loaded = _loaded_modules()
    checks = [
        Check("import interp, seconds over import torch", added, at_most=SECONDS),
        *(Check(f"modules of {name} that it loads", loaded[name], at_most=0) for name in HEAVY),
    ]
    yield timed("import", timing, baseline="import torch", settings={}, checks=checks)


def _program(code: str) -> Action:
    return lambda: subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def _loaded_modules() -> dict[str, int]:
    """How many modules of each heavy package stand in `sys.modules` after `import interp`."""
    code = (
        "import json, sys, interp; "
        "print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    roots = json.loads(done.stdout)
    return {name: roots.count(name) for name in HEAVY}
