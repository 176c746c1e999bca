"""One claim about attention, what was measured here, and what to say of it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["holds", "holds with a condition", "does not hold"]


@dataclass(frozen=True)
class Claim:
    """What is said, what was found, and by which code.

    Attributes:
        claim: The statement as it circulates.
        measured: Numbers by name.
        verdict: Whether it holds here.
        because: The verdict in a sentence.
        path: The code that ran.
    """

    claim: str
    measured: Mapping[str, Any]
    verdict: Verdict
    because: str
    path: str


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
