"""What an experiment is run on: tokens, which of them are real, and what is asked."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.calls import checked_mask
from interp.metrics import METRICS, Metric, kl_divergence, next_token_targets, scored_counts


@dataclass(frozen=True, eq=False)
class Examples:
    """Tokens with their targets; `mask` is None where all tokens are real."""

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] | None
    targets: Int[Tensor, "B T"]

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def weights(self) -> Int[Tensor, "B"]:
        """Scored targets of each example: its weight in means."""
        return scored_counts(self.targets)

    def rows(self, which: slice) -> "Examples":
        """Some of the examples."""
        mask = None if self.mask is None else self.mask[which]
        return replace(self, tokens=self.tokens[which], mask=mask, targets=self.targets[which])


def examples_of(data: Any, mask: Tensor | None = None, *, needs_targets: bool = True) -> Examples:
    """Tokens [B T], asked for the next token, or a Batch, asked what it asks.

    Raises:
        TypeError: Neither of these.
        ValueError: A mask beside a Batch, which has its own; nothing is asked.
    """
    if isinstance(data, Tensor):
        if data.ndim != 2 or data.dtype.is_floating_point:
            raise TypeError(f"wanted token ids [batch pos], got {data.dtype} {list(data.shape)}")
        mask = checked_mask(mask, data)
        mask = None if mask is None or bool(mask.all()) else mask
        examples = Examples(data, mask, next_token_targets(data, mask))
        return _asked(examples) if needs_targets else examples
    if mask is not None:
        raise ValueError("a Batch has its own mask; pass either tokens and mask, or a Batch")
    try:
        tokens, real, targets = data.tokens, data.mask, data.targets
    except AttributeError as error:
        raise TypeError(
            f"wanted tokens [batch pos] or a Batch, got {type(data).__name__}"
        ) from error
    real = None if real is None or bool(real.all()) else real
    examples = Examples(tokens, real, targets)
    return _asked(examples) if needs_targets else examples


def _asked(examples: Examples) -> Examples:
    if not bool(examples.weights.any()):
        raise ValueError(
            f"nothing is asked of these {list(examples.tokens.shape)} tokens: next-token targets "
            "need two real tokens in a row, a Batch one target that is not −100"
        )
    return examples


Measure = Metric
"""A metric once its reference is known."""


def measure_of(metric: str | Metric, clean_logits: Float[Tensor, "B T V"]) -> Measure:
    """A metric by name or as it is; "kl" is KL(clean ‖ changed) at the scored positions, nats.

    Raises:
        TypeError: It is neither a name nor a function.
        ValueError: There is none of that name.
    """
    if not isinstance(metric, str):
        if not callable(metric):
            raise TypeError(
                f"a metric is one of {', '.join([*METRICS, 'kl'])}, or a function "
                f"metric(logits, batch) -> [B]; got {metric!r}"
            )
        return metric
    if metric == "kl":
        return partial(kl_divergence, reference=clean_logits)
    if metric not in METRICS:
        raise ValueError(
            f"no metric {metric!r}; there are {', '.join([*METRICS, 'kl'])}, "
            "or pass a function metric(logits, batch) -> [B]"
        )
    return METRICS[metric]


def check_gradients() -> None:
    """Refuse to take gradients where torch keeps none.

    Raises:
        RuntimeError: It is called under `torch.inference_mode()`.
    """
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "this takes gradients, and torch.inference_mode() keeps none; call it outside of the "
            "block (torch.no_grad() does no harm)"
        )


def metric_name(metric: str | Metric) -> str:
    """How a result calls a metric."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", repr(metric))


def measured(measure: Measure, logits: Tensor, examples: Examples) -> Float[Tensor, "B"]:
    """The metric of each example.

    Raises:
        ValueError: It is not one number an example.
    """
    values = measure(logits, examples)
    if not isinstance(values, Tensor) or values.shape != (len(examples),):
        got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"a metric gives one number an example, [{len(examples)}]; this one gave {got}"
        )
    return values.to(torch.promote_types(values.dtype, torch.float32))
