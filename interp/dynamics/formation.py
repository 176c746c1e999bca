"""The step at which a head forms: where its score rises most."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Formation:
    """When a score rose from its floor to its ceiling.

    Attributes:
        step: Where it passes half the way, on a line between measurements; None: it did not rise.
        low: The last measurement before it passed a tenth of the way.
        high: The first one from which it stays above nine tenths.
        rise: Ceiling less floor.
    """

    step: float | None
    low: float | None
    high: float | None
    rise: float


def formation(
    steps: Sequence[int], scores: Float[Tensor, " step"] | Sequence[float], *, least: float = 0.2
) -> Formation:
    """Find the rise of a score: floor is its first value, ceiling the mean of its last fifth.

    Args:
        steps: Where it was measured, in order.
        scores: One a step; NaN is left out.
        least: A rise of less is none.

    Raises:
        ValueError: The two differ in length, steps are not in order, or fewer than 3 are measured.
    """
    values = torch.as_tensor(scores, dtype=torch.float64)
    at = torch.as_tensor(list(steps), dtype=torch.float64)
    if values.shape != at.shape or bool((at.diff() <= 0).any()):
        raise ValueError(f"wanted one score a step, in order; got {len(values)} for {len(at)}")
    at, values = at[~values.isnan()], values[~values.isnan()]
    if len(values) < 3:
        raise ValueError(f"a rise needs 3 measurements or more, got {len(values)}")
    floor = values[0]
    ceiling = values[-max(1, len(values) // 5) :].mean()
    rise = float(ceiling - floor)
    if rise < least:
        return Formation(None, None, None, rise)
    share = (values - floor) / rise
    return Formation(
        step=_crossing(at, share, 0.5),
        low=float(at[max(0, _last_below(share, 0.1))]),
        high=float(at[min(len(at) - 1, _last_below(share, 0.9) + 1)]),
        rise=rise,
    )


def _last_below(share: Tensor, level: float) -> int:
    """The index of the last measurement under a level, before it stays above."""
    below = (share < level).nonzero().flatten()
    return int(below[-1]) if len(below) else 0


def _crossing(at: Tensor, share: Tensor, level: float) -> float:
    last = min(_last_below(share, level), len(at) - 2)
    before, after = share[last], share[last + 1]
    part = ((level - before) / (after - before)).clamp(0, 1) if after != before else 1.0
    return float(at[last] + part * (at[last + 1] - at[last]))


@dataclass(frozen=True)
class AcrossSeeds:
    """When a score rises, over runs that differ in their seed.

    Attributes:
        step: Mean over the runs in which it rose; None: in none.
        low: Lower end of the mean's 95 % interval (Student's t); None for fewer than two.
        high: Upper end.
        formed: In how many it rose.
        of: How many there were.
    """

    step: float | None
    low: float | None
    high: float | None
    formed: int
    of: int


def across_seeds(found: Sequence[Formation]) -> AcrossSeeds:
    """The mean step of several runs' formations, with an interval from how much they differ."""
    from scipy.stats import t

    steps = torch.tensor([f.step for f in found if f.step is not None], dtype=torch.float64)
    n = len(steps)
    if n < 2:
        return AcrossSeeds(float(steps[0]) if n else None, None, None, n, len(found))
    half = float(t.ppf(0.975, n - 1) * steps.std() / n**0.5)
    mean = float(steps.mean())
    return AcrossSeeds(mean, mean - half, mean + half, n, len(found))
