"""How sure an effect is: bootstrap intervals, paired permutation tests, Holm's correction.

Examples are the units. Each weighs what it has of scored targets, so that an effect is a mean over
tokens, not a mean of means; the weight goes with its example into every resample.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 1 << 22  # entries of a resampling matrix at a time
COLUMNS = 1 << 11  # numbers whose quantiles are taken at a time: torch's have a limit


class Interval(NamedTuple):
    """Both ends of an interval, in the shape of what it is about."""

    low: Tensor
    high: Tensor


def bootstrap_interval(
    values: Float[Tensor, "*lead B"],
    weights: Int[Tensor, "B"],
    *,
    level: float = 0.95,
    draws: int = 2000,
    generator: torch.Generator | None = None,
) -> Interval:
    """The percentile interval of the weighted mean over examples; NaN if there is one example.

    Args:
        values: What each example gave.
        weights: Scored targets of each.
        level: Share of resamples inside.
        draws: Resamples.
        generator: None: a fixed seed of its own, so that the interval is the same each time.

    Source: Efron 1979, "Bootstrap Methods".
    """
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, got {level}")
    flat, weight = _counted(values, weights)
    n = flat.shape[1]
    if n < 2:
        nothing = torch.full(values.shape[:-1], torch.nan, dtype=torch.float64)
        return Interval(nothing, nothing)
    generator = generator or torch.Generator().manual_seed(0)
    means = []
    for size in _blocks(draws, n):
        picks = torch.randint(n, (size, n), generator=generator)
        times = torch.zeros(size, n, dtype=torch.float64)
        times.scatter_add_(1, picks, torch.ones_like(times))
        times = times * weight
        means.append((times @ flat.T) / times.sum(1, keepdim=True))
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    columns = torch.cat(means).split(COLUMNS, dim=1)
    ends = torch.cat([some.quantile(tails, dim=0) for some in columns], 1)
    low, high = ends.reshape(2, *values.shape[:-1]).unbind()
    return Interval(low, high)


class Sampled:
    """For results with one number for each example: how sure their means are."""

    per_example: Tensor
    weights: Int[Tensor, " example"]

    def interval(
        self, level: float = 0.95, *, draws: int = 2000, generator: torch.Generator | None = None
    ) -> Interval:
        """Both ends of each mean's bootstrap interval over examples, weighted by their targets.

        With generator=None a fixed seed is used, so that the interval is the same each time.
        """
        return bootstrap_interval(
            self.per_example, self.weights, level=level, draws=draws, generator=generator
        )


def permutation_p_values(
    differences: Float[Tensor, "*lead B"],
    weights: Int[Tensor, "B"],
    *,
    draws: int = 2000,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*lead"]:
    """Two-sided p of the paired permutation test: how often random signs give as large a mean.

    Under the null, "changed" and "clean" of an example may be exchanged. The smallest p there can
    be is 1 / (draws + 1). A difference of exactly 0 in every example has p = 1.

    Source: Fisher 1935; the correction by one is Phipson & Smyth's (2010).
    """
    flat, weight = _counted(differences, weights)
    weighted = flat * weight
    seen = weighted.sum(1).abs()
    generator = generator or torch.Generator().manual_seed(0)
    reached = torch.zeros_like(seen)
    for size in _blocks(draws, flat.shape[1]):
        signs = torch.randint(2, (size, flat.shape[1]), generator=generator).double() * 2 - 1
        reached += ((signs @ weighted.T).abs() >= seen * (1 - 1e-12)).sum(0)
    return ((reached + 1) / (draws + 1)).reshape(differences.shape[:-1])


def holm(p_values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """p-values corrected for their number: below α, the chance of any false one is below α.

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    ordered, order = p_values.flatten().sort()
    n = len(ordered)
    steps = torch.arange(n, 0, -1, dtype=ordered.dtype, device=ordered.device)
    corrected = (ordered * steps).cummax(0).values.clamp(max=1.0)
    return torch.empty_like(corrected).scatter(0, order, corrected).view_as(p_values)


def _counted(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the examples that have a weight, in float64, on the CPU."""
    kept = weights > 0
    return values[..., kept].reshape(-1, int(kept.sum())).double().cpu(), weights[
        kept
    ].double().cpu()


def _blocks(draws: int, n: int) -> list[int]:
    size = max(1, BLOCK // n)
    return [min(size, draws - first) for first in range(0, draws, size)]
