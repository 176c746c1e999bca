"""Time functions against each other in interleaved rounds.

The speed of a machine drifts (clock, caches, neighbours), so times taken one after the other
cannot be compared to a few per cent. Here each round runs every contestant once, in turns
forwards and backwards (A B C, C B A, ...), and contestants are compared within rounds: the
ratio of a contestant to the baseline is the median over rounds of its ratio in that round.

On a machine that is never left alone, wall time says little. Processor time on one thread
still compares the work that contestants do: what preempts them is not charged to them.
"""

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.load import Meter, wait_for_calm

LONGEST_WAIT = 15.0  # seconds that one disturbed round is waited for, at most
Action = Callable[[], object]
Clock = Literal["wall", "processor"]


@dataclass(frozen=True)
class Round:
    """One run of every contestant."""

    seconds: dict[str, float]
    foreign: float  # cores that other processes used meanwhile
    disturbed: bool


@dataclass(frozen=True)
class Timing:
    """All rounds that were run, and which of them count."""

    rounds: list[Round]
    wanted: int
    repeats: dict[str, int]  # calls averaged within one sample
    clock: Clock = "wall"

    @property
    def counted(self) -> list[Round]:
        """The undisturbed rounds; if they are too few, the calmest that there were."""
        return sorted(self.rounds, key=lambda r: (r.disturbed, r.foreign))[: self.wanted]

    @property
    def calm(self) -> bool:
        """Whether every round that counts was undisturbed."""
        return not any(r.disturbed for r in self.counted)

    def median(self, name: str) -> float:
        """Median seconds of one call."""
        return statistics.median(r.seconds[name] for r in self.counted)

    def ratio(self, name: str, baseline: str) -> float:
        """Median over rounds of `name`'s time over `baseline`'s in the same round."""
        return statistics.median(r.seconds[name] / r.seconds[baseline] for r in self.counted)

    def difference(self, name: str, baseline: str) -> float:
        """Median over rounds of the seconds that `name` took longer than `baseline`."""
        return statistics.median(r.seconds[name] - r.seconds[baseline] for r in self.counted)


def interleave(
    actions: Mapping[str, Action],
    *,
    rounds: int = 15,
    warmup: int = 2,
    shortest: float = 0.1,
    patience: float = 300.0,
    clock: Clock = "wall",
) -> Timing:
    """Time `actions` against each other until `rounds` rounds ran undisturbed.

    In processor time nothing disturbs: all rounds count, and none is waited for.

    Args:
        actions: What to run, by name.
        rounds: Rounds that count.
        warmup: Untimed calls of each before the first round.
        shortest: A sample repeats its call until it lasts about so many seconds.
        patience: Seconds after which disturbed rounds count too, and `Timing.calm` is False.
        clock: What a second is: of the wall's clock, or of work of this process and its children.
    """
    for action in actions.values():
        for _ in range(warmup):
            action()
    now = CLOCKS[clock]
    repeats = {name: _repeats(action, shortest, now) for name, action in actions.items()}

    def run(number: int) -> Round:
        names = list(actions) if number % 2 == 0 else list(actions)[::-1]
        return _run_round({name: actions[name] for name in names}, repeats, clock)

    return Timing(collect(run, rounds=rounds, patience=patience), rounds, repeats, clock)


def collect(run: Callable[[int], Round], *, rounds: int, patience: float) -> list[Round]:
    """Run rounds until so many were undisturbed, or, when patience is over, were run at all."""
    end = time.perf_counter() + patience
    done: list[Round] = []
    while not _enough(done, rounds, time.perf_counter() > end):
        if done and done[-1].disturbed:
            wait_for_calm(min(LONGEST_WAIT, max(end - time.perf_counter(), 0.0)))
        done.append(run(len(done)))
    return done


def _enough(done: list[Round], rounds: int, late: bool) -> bool:
    return len(done) >= rounds if late else sum(not r.disturbed for r in done) >= rounds


def _run_round(actions: Mapping[str, Action], repeats: dict[str, int], clock: Clock) -> Round:
    meter, seconds = Meter(), {}
    for name, action in actions.items():
        seconds[name] = _seconds(action, repeats[name], CLOCKS[clock])
    foreign, disturbed = meter.read()
    return Round(seconds, foreign, disturbed and clock == "wall")


def _seconds(action: Action, repeats: int, now: Callable[[], float]) -> float:
    start = now()
    for _ in range(repeats):
        action()
    return (now() - start) / repeats


def _repeats(action: Action, shortest: float, now: Callable[[], float]) -> int:
    """Calls that last about `shortest` seconds; short ones are tried twice."""
    once = _seconds(action, 1, now) if shortest else shortest
    if once >= shortest:
        return 1
    return max(1, round(shortest / max(min(once, _seconds(action, 1, now)), 1e-9)))


def processor_seconds() -> float:
    """Processor time of this process, all its threads, and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


CLOCKS: dict[Clock, Callable[[], float]] = {
    "wall": time.perf_counter,
    "processor": processor_seconds,
}
