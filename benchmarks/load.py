"""How much of this machine's processor other processes are using.

A timing is only worth keeping if the machine was ours while it ran. Linux tells the busy
time of all processors in /proc/stat; what is left of it after our own processor time is
foreign. Elsewhere the load is unknown: NaN, and no round is thrown away for it.
"""

import math
import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
CALM = 0.06  # cores; the kernel's own housekeeping stays under it
TICK = 0.03  # seconds of busy time that the 10 ms clock of /proc/stat may misplace


def busy_seconds() -> float:
    """Processor seconds used since boot by everybody, over all cores; NaN if unknown."""
    if not STAT.exists():
        return math.nan
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(ticks) for ticks in STAT.read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor seconds used by this process and its finished children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class Meter:
    """Foreign load between `Meter()` and `read()`."""

    def __init__(self) -> None:
        self.busy, self.own, self.clock = busy_seconds(), own_seconds(), time.perf_counter()

    def read(self) -> tuple[float, bool]:
        """Cores that others used on average, and whether that disturbs a measurement."""
        wall = time.perf_counter() - self.clock
        foreign = (busy_seconds() - self.busy) - (own_seconds() - self.own)
        return max(foreign, 0.0) / wall, foreign > CALM * wall + TICK


def wait_for_calm(seconds: float, *, glance: float = 0.5) -> bool:
    """Sleep until two glances in a row find the machine idle; False if `seconds` run out."""
    end, calm = time.perf_counter() + seconds, 0
    while calm < 2 and time.perf_counter() < end:
        meter = Meter()
        time.sleep(glance)
        _, disturbed = meter.read()
        calm = 0 if disturbed else calm + 1
    return calm == 2
