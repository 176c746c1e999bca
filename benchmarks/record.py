"""What a benchmark leaves behind: every sample, on which machine, with which versions."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import Timing

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "numpy", "transformers", "transformer_lens", "streamlit", "plotly")


@dataclass(frozen=True)
class Check:
    """One number against the limit that it should keep."""

    claim: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool:
        """Whether the number keeps its limits; NaN does not."""
        below = self.at_most is None or self.value <= self.at_most
        return below and (self.at_least is None or self.value >= self.at_least)

    @property
    def limit(self) -> str:
        """The limit in words."""
        signs = (("≤", self.at_most), ("≥", self.at_least))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in signs if bound is not None)


@dataclass(frozen=True)
class Measurement:
    """One comparison: what was run, how, every sample, and the limits it was held to."""

    name: str
    settings: dict[str, Any]
    unit: str
    baseline: str
    medians: dict[str, float]
    ratios: dict[str, float]  # to the baseline, median over rounds
    samples: dict[str, list[float]]
    checks: list[Check] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


def timed(
    name: str, timing: Timing, *, baseline: str, settings: dict[str, Any], checks: list[Check]
) -> Measurement:
    """The measurement that a `Timing` makes, with each round's foreign load in the notes."""
    names = list(timing.repeats)
    return Measurement(
        name=name,
        settings=settings,
        unit="s",
        baseline=baseline,
        medians={n: timing.median(n) for n in names},
        ratios={n: timing.ratio(n, baseline) for n in names},
        samples={n: [r.seconds[n] for r in timing.rounds] for n in names},
        checks=checks,
        notes={
            "clock": timing.clock,
            "calm": timing.calm,
            "rounds_counted": len(timing.counted),
            "counted": [r in timing.counted for r in timing.rounds],
            "foreign_cores": [round(r.foreign, 3) for r in timing.rounds],
            "calls_per_sample": timing.repeats,
        },
    )


def machine() -> dict[str, Any]:
    """Processor, cores, threads and memory of this machine."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
    }


def versions() -> dict[str, str | None]:
    """Versions of Python, of the libraries compared and, as a commit, of this repository."""
    found = {name: _version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found, "interp_commit": _commit()}


def save(
    benchmark: str, measurements: list[Measurement], *, folder: Path, add: bool = False
) -> Path:
    """Write `folder/benchmark.json` and return its path.

    Args:
        benchmark: Its name.
        measurements: What was measured.
        folder: Where to.
        add: Keep other measurements that the file has.

    Raises:
        ValueError: Those are of another machine, or of other versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.json"
    where = {"machine": machine(), "versions": versions()}
    kept = _kept(path, where, {m.name for m in measurements}) if add else []
    record = {
        "benchmark": benchmark,
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **where,
        "measurements": kept + [_as_json(m) for m in measurements],
    }
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    unfinished.replace(path)
    return path


def _kept(path: Path, where: dict[str, Any], new: set[str]) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    old = json.loads(path.read_text())
    if any(old[name] != here for name, here in where.items()):
        raise ValueError(f"{path} is of another machine or of other versions: run all sizes anew")
    return [m for m in old["measurements"] if m["name"] not in new]


def show(measurement: Measurement, *, console: Console) -> None:
    """Print a comparison as a table, and each limit as met or not met."""
    m = measurement
    mood = "" if m.notes.get("calm", True) else " (others were using the machine)"
    table = Table(title=m.name + mood, title_justify="left")
    for heading in ("", f"median [{m.unit}]", f"over {m.baseline}"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, median in m.medians.items():
        table.add_row(name, f"{median:.4g}", f"{m.ratios[name]:.3f}")
    console.print(table)
    for line in m.notes.get("not_run", []):
        console.print(f"  {line}")
    for check in m.checks:
        verdict = "[blue]met[/]" if check.met else "[bold]not met[/]"
        console.print(f"  {check.claim}: {check.value:.3f}, wanted {check.limit}: {verdict}")


def _as_json(measurement: Measurement) -> dict[str, Any]:
    fields = dataclasses.asdict(measurement)
    fields["checks"] = [dataclasses.asdict(c) | {"met": c.met} for c in measurement.checks]
    fields["samples"] = {
        name: [float(f"{x:.6g}") for x in xs] for name, xs in measurement.samples.items()
    }
    return fields


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """The commit that is checked out, with `+` where files differ from it."""
    head = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return head.stdout.strip() or None
