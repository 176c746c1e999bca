"""A clean and a corrupted batch, one beside the other, and the metric that both are judged by."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.cache import ActivationCache
from interp.hooks import Hooks
from interp.metrics import Metric, kl_divergence
from interp.sweeps import Examples, evaluating, examples_of
from interp.sweeps.examples import Measure, measure_of, measured

Direction = Literal["denoising", "noising"]


@dataclass(frozen=True, eq=False)
class Ends:
    """The run that is patched (`base`), and the run that patches come from (`source`).

    Denoising patches clean activations into the corrupted run: what suffices. Noising patches
    corrupted ones into the clean run: what is needed. Both are asked the clean batch's targets.

    Attributes:
        base: Examples that are run and patched.
        source: Examples that patches come from.
        measure: The metric.
    """

    base: Examples
    source: Examples
    measure: Measure


def ends_of(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    direction: str,
    metric: str | Metric,
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
) -> Ends:
    """Check two batches, and say which is patched into which. "kl" is KL(clean ‖ patched).

    Raises:
        ValueError: They differ in shape or padding, so that positions don't correspond; or there
            is no such direction.
    """
    if direction not in ("denoising", "noising"):
        raise ValueError(f"direction is 'denoising' or 'noising', got {direction!r}")
    first = examples_of(clean, mask)
    given_mask = mask if isinstance(corrupted, Tensor) else None
    second = examples_of(corrupted, given_mask, needs_targets=False)
    if first.tokens.shape != second.tokens.shape or not _same(first.mask, second.mask):
        raise ValueError(
            "clean and corrupted must agree in shape and padding, so that positions correspond; "
            f"got {list(first.tokens.shape)} and {list(second.tokens.shape)}"
        )
    second = replace(second, targets=first.targets)
    measure = _measure(model, first, metric, hooks)
    ends = (second, first) if direction == "denoising" else (first, second)
    return Ends(*ends, measure)


def _measure(model: Any, clean: Examples, metric: str | Metric, hooks: Hooks) -> Measure:
    if metric != "kl":
        return measure_of(metric, clean.tokens)  # the reference is for "kl" alone
    with evaluating(model):
        logits = model(clean.tokens, mask=clean.mask, hooks=hooks)
    return partial(kl_divergence, reference=logits)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a, b)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Activations of one end, and its metric."""

    cache: ActivationCache
    values: Float[Tensor, "B"]


def recorded(
    model: Any, examples: Examples, names: list[str], measure: Measure, hooks: Hooks = ()
) -> Recorded:
    """Run one end, keeping what is named."""
    with evaluating(model):
        logits, cache = model.run_with_cache(
            examples.tokens, names_filter=names, mask=examples.mask, hooks=hooks
        )
        return Recorded(cache, measured(measure, logits, examples))
