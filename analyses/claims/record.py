"""How claims are measured: the least time of interleaved rounds, and what memory is added."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from interp.report.claims import Claim, Verdict

__all__ = ["Claim", "Verdict", "peak_added", "seconds", "slope"]


def seconds(
    actions: Mapping[str, Callable[[], object]], *, rounds: int = 5, at_least: float = 2.0
) -> dict[str, float]:
    """Least seconds of each action over rounds in turns: what other processes add is left out.

    Short actions run more rounds, until `at_least` seconds have passed.
    """
    for action in actions.values():
        action()
    found: dict[str, list[float]] = {name: [] for name in actions}
    end, number = time.perf_counter() + at_least, 0
    while number < rounds or (time.perf_counter() < end and number < 500):
        order = list(actions) if number % 2 == 0 else list(actions)[::-1]
        number += 1
        for name in order:
            start = time.perf_counter()
            actions[name]()
            found[name].append(time.perf_counter() - start)
    return {name: min(times) for name, times in found.items()}


def peak_added(action: Callable[[], object]) -> float:
    """MiB that an action holds at most, above what the process held before; on Linux only."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS:")
    action()
    return max(0, _memory("VmHWM:") - before) / 2**10


def _memory(name: str) -> int:
    """KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def slope(by_size: Mapping[int, float]) -> float:
    """The exponent of a cost: the slope of log cost over log size, by least squares."""
    import numpy as np

    sizes, costs = np.log(list(by_size)), np.log(list(by_size.values()))
    return float(np.polyfit(sizes, costs, 1)[0])
