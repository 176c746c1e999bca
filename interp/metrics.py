"""Loss, accuracy, logit difference: over the targets that count, per token and per example.

`targets[b, t]` is what `logits[b, t]` should say; where it is `UNSCORED` (−100) nothing is asked.
A metric is a function `metric(logits, batch) -> [B]`, the mean over an example's scored targets,
NaN where it has none; `weighted_mean` makes one number of it, each example weighing what it has
of scored targets, so that it is the mean over tokens, not the mean of means. Logits may have
further axes in front of `B`, such as one for interventions.
"""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

UNSCORED = -100


class Scored(Protocol):
    """Anything with targets: a `Batch`."""

    @property
    def targets(self) -> Int[Tensor, "B T"]:
        """What each position's logits should say; −100 where nothing is asked."""
        ...


Metric = Callable[[Tensor, Scored], Tensor]


# --- targets -----------------------------------------------------------------------------


def next_token_targets(
    tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None
) -> Int[Tensor, "B T"]:
    """For each position the token after it, where both are real; −100 elsewhere.

    `mask` is True for real tokens (None: all are). So nothing is asked of a pad, of the last
    token, or of the position before a pad, on whichever side the padding is.
    """
    targets = F.pad(tokens[:, 1:].long(), (0, 1), value=UNSCORED)
    if mask is None:
        return targets
    real = mask.bool()
    return targets.masked_fill(~(real & F.pad(real[:, 1:], (0, 1))), UNSCORED)


def scored_counts(targets: Int[Tensor, "B T"]) -> Int[Tensor, "B"]:
    """How many scored targets each example has: its weight in a mean over examples."""
    return (targets != UNSCORED).sum(-1)


# --- per token ---------------------------------------------------------------------------


def per_token_loss(
    logits: Float[Tensor, "*lead B T V"], targets: Int[Tensor, "B T"]
) -> Float[Tensor, "*lead B T"]:
    """Cross entropy of each position in nats; NaN where nothing is scored.

    Computed in float32 or better. Gradients of unscored positions are 0, not NaN.
    """
    targets = _fitting(logits, targets)
    losses = F.cross_entropy(
        _precise(logits).flatten(0, -2), targets.flatten(), reduction="none", ignore_index=UNSCORED
    )
    return losses.view(targets.shape).masked_fill(targets == UNSCORED, torch.nan)


def per_token_kl(
    logits: Float[Tensor, "*lead B T V"], reference: Float[Tensor, "B T V"]
) -> Float[Tensor, "*lead B T"]:
    """KL(reference ‖ logits) between the predictions at each position, in nats; 0 if alike."""
    log_p, log_q = _precise(reference).log_softmax(-1), _precise(logits).log_softmax(-1)
    # xlogy-like: a token of probability 0 under the reference adds 0, whatever the other says
    terms = log_p.exp() * (log_p - log_q)
    return terms.masked_fill(log_p == -torch.inf, 0.0).sum(-1)


# --- per example -------------------------------------------------------------------------


def loss(logits: Float[Tensor, "*lead B T V"], batch: Scored) -> Float[Tensor, "*lead B"]:
    """Mean cross entropy of each example's scored targets, nats: 0 is perfect, ln V indifferent."""
    return _example_mean(per_token_loss(logits, batch.targets), batch.targets)


def accuracy(logits: Float[Tensor, "*lead B T V"], batch: Scored) -> Float[Tensor, "*lead B"]:
    """Share of each example's scored targets that have the highest logit, from 0 to 1."""
    targets = _fitting(logits, batch.targets)
    return _example_mean((logits.argmax(-1) == targets).to(torch.float32), batch.targets)


def probability(logits: Float[Tensor, "*lead B T V"], batch: Scored) -> Float[Tensor, "*lead B"]:
    """Mean probability that is given to each example's scored targets, from 0 to 1."""
    return _example_mean((-per_token_loss(logits, batch.targets)).exp(), batch.targets)


def logit_difference(
    logits: Float[Tensor, "*lead B T V"],
    batch: Scored,
    *,
    wrong: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "*lead B"]:
    """Mean logit of the scored targets minus that of the wrong answers; 0 is indifferent.

    `wrong` names the wrong token at each position. None: the mean over all other tokens, so that
    the difference stays linear in the logits. Positive where the target is preferred.
    """
    logits, targets = _precise(logits), _fitting(logits, batch.targets)
    right = _logit_of(logits, targets)
    if wrong is None:
        others = (logits.sum(-1) - right) / (logits.shape[-1] - 1)
    else:
        others = _logit_of(logits, _fitting(logits, wrong))
    return _example_mean(right - others, batch.targets)


def kl_divergence(
    logits: Float[Tensor, "*lead B T V"], batch: Scored, *, reference: Float[Tensor, "B T V"]
) -> Float[Tensor, "*lead B"]:
    """Mean KL(reference ‖ logits) over each example's scored positions, nats; 0 if unchanged.

    A metric like the others once the reference is given: `partial(kl_divergence, reference=clean)`.
    """
    return _example_mean(per_token_kl(logits, reference), batch.targets)


# --- one number --------------------------------------------------------------------------


def weighted_mean(
    values: Float[Tensor, "*lead B"], weights: Int[Tensor, "B"]
) -> Float[Tensor, "*lead"]:
    """Mean over examples by weight (`scored_counts`): the mean over tokens.

    Examples of weight 0 are left out, whatever their value; NaN if no example has a weight.
    """
    weights = weights.to(values.dtype)
    return (values.masked_fill(weights == 0, 0.0) * weights).sum(-1) / weights.sum()


def mean_loss(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean cross entropy over all scored targets, nats: what training minimises.

    0, with gradients of 0, if nothing is scored: an empty micro-batch then changes nothing.
    """
    targets = _fitting(logits, targets)
    total = F.cross_entropy(
        _precise(logits).flatten(0, -2), targets.flatten(), reduction="sum", ignore_index=UNSCORED
    )
    return total / (targets != UNSCORED).sum().clamp(min=1)


def _example_mean(
    values: Float[Tensor, "*lead B T"], targets: Int[Tensor, "B T"]
) -> Float[Tensor, "*lead B"]:
    unscored = targets == UNSCORED
    return values.masked_fill(unscored, 0.0).sum(-1) / (~unscored).sum(-1)  # 0 / 0 is NaN


def _logit_of(logits: Tensor, tokens: Tensor) -> Tensor:
    index = tokens.masked_fill(tokens == UNSCORED, 0)
    return logits.gather(-1, index[..., None]).squeeze(-1)


def _fitting(logits: Tensor, targets: Tensor) -> Tensor:
    """The targets, repeated along the axes in front; refused if they don't fit."""
    if logits.ndim < 3 or logits.shape[-3:-1] != targets.shape:
        raise ValueError(
            f"wanted logits [..., B, T, V] and targets [B, T], "
            f"got {list(logits.shape)} and {list(targets.shape)}"
        )
    return targets.expand(logits.shape[:-1])


def _precise(logits: Tensor) -> Tensor:
    """Logits in float32, or float64 where they are."""
    return logits if logits.dtype is torch.float64 else logits.float()


METRICS: dict[str, Metric] = {
    "loss": loss,
    "accuracy": accuracy,
    "logit_difference": logit_difference,
    "probability": probability,
}
