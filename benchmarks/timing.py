"""Time functions against each other in interleaved rounds.

The speed of a machine drifts (clock, caches, neighbours), so times taken one after the other
cannot be compared to a few per cent. Here each round runs every contestant once, in turns
forwards and backwards (A B C, C B A, ...), and contestants are compared within rounds: the
ratio of a contestant to the baseline is the median over rounds of its ratio in that round.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.load import Meter, wait_for_calm

LONGEST_WAIT = 15.0  # seconds that one disturbed round is waited for, at most
Action = Callable[[], object]


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
) -> Timing:
    """Time `actions` against each other until `rounds` rounds ran undisturbed.

    Args:
        actions: What to run, by name.
        rounds: Rounds that count.
        warmup: Untimed calls of each before the first round.
        shortest: A sample repeats its call until it lasts about so many seconds.
        patience: Seconds after which disturbed rounds count too, and `Timing.calm` is False.
    """
    for action in actions.values():
        for _ in range(warmup):
            action()
    repeats = {name: _repeats(action, shortest) for name, action in actions.items()}
    end = time.perf_counter() + patience
    done: list[Round] = []
    while not _enough(done, rounds, time.perf_counter() > end):
        if done and done[-1].disturbed:
            wait_for_calm(min(LONGEST_WAIT, max(end - time.perf_counter(), 0.0)))
        names = list(actions) if len(done) % 2 == 0 else list(actions)[::-1]
        done.append(_run_round(actions, names, repeats))
    return Timing(done, rounds, repeats)


def _enough(done: list[Round], rounds: int, late: bool) -> bool:
    return len(done) >= rounds if late else sum(not r.disturbed for r in done) >= rounds


def _run_round(actions: Mapping[str, Action], names: list[str], repeats: dict[str, int]) -> Round:
    meter, seconds = Meter(), {}
    for name in names:
        seconds[name] = _seconds(actions[name], repeats[name])
    foreign, disturbed = meter.read()
    return Round({name: seconds[name] for name in actions}, foreign, disturbed)


def _seconds(action: Action, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


def _repeats(action: Action, shortest: float) -> int:
    """Calls that last about `shortest` seconds, from the faster of two calls."""
    if not shortest:
        return 1
    once = min(_seconds(action, 1), _seconds(action, 1))
    return max(1, round(shortest / max(once, 1e-9)))
