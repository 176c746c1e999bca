"""Head importance from one forward and one backward pass."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation.cutting import sweep
from interp.hooks import Hook, Hooks
from interp.metrics import Metric, weighted_mean
from interp.results import Result
from interp.sweeps import (
    SITES,
    Examples,
    Progress,
    Sampled,
    evaluating,
    examples_of,
    metric_name,
)
from interp.sweeps.examples import check_gradients, measure_of, measured


@dataclass(frozen=True)
class Importance(Sampled, Result):
    """First-order importance of each head; intervals are of it before normalising.

    Attributes:
        importance: Mean over examples of |∂metric/∂ξ|, ξ being a factor on the head's z.
        rank_correlation: Spearman's, with |effect| of cutting each head to zero; None if that was
            not asked for.
        exact: Those effects.
        per_example: |∂metric/∂ξ| of each example.
        weights: Scored targets of each example.
        metric: What was differentiated.
        layers_normalized: Whether each layer's scores were divided by their ℓ2 norm.
    """

    axes: ClassVar = {
        "importance": ("layer", "head"),
        "exact": ("layer", "head"),
        "per_example": ("layer", "head", "example"),
        "weights": ("example",),
    }

    importance: Float[Tensor, "layer head"]
    exact: Float[Tensor, "layer head"] | None
    per_example: Float[Tensor, "layer head example"]
    weights: Int[Tensor, " example"]
    rank_correlation: float | None
    metric: str
    layers_normalized: bool

    def order(self) -> list[tuple[int, int]]:
        """Heads (layer, head), the least important first."""
        heads = self.importance.shape[1]
        flat = self.importance.flatten().argsort(stable=True).tolist()
        return [divmod(i, heads) for i in flat]


def importance(
    model: Any,
    tokens: Any,
    *,
    metric: str | Metric = "logit_difference",
    exact: bool = True,
    normalize_layers: bool = False,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    memory: int | None = None,
    progress: Progress | None = None,
) -> Importance:
    """|∂metric/∂ξ| of each head, ξ being a factor on its z, absolute for each example: [L H].

    The metric is the logit difference by default: at a converged loss the gradients vanish, and
    the order they give has little to do with what cutting a head does.

    Args:
        model: Ours, or a wrapped one that gradients flow through.
        tokens: Tokens or a Batch.
        metric: See `sweep`; it must be differentiable.
        exact: Also cut each head to zero, by `sweep`, and report the rank correlation.
        normalize_layers: Divide each layer's scores by their ℓ2 norm, as the paper does to prune.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.
        memory: See `sweep`, which cuts the heads.
        progress: Of that sweep; see there.

    Raises:
        ValueError: The metric has no gradient, or, as "kl", one that is 0 for every head.

    Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", eq. 2. There the
    metric is the loss.
    """
    if metric == "kl":
        raise ValueError(
            "metric='kl' compares with the clean run, where its gradient vanishes: no head would "
            "have any importance; take another metric, or metric='kl' in ablation.sweep"
        )
    examples = examples_of(tokens, mask)
    per_example = gate_gradients(model, examples, metric, hooks=hooks).abs()
    scores = weighted_mean(per_example, examples.weights)
    if normalize_layers:
        scores = scores / scores.norm(dim=1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    effects, correlation = None, None
    if exact:
        how: dict[str, Any] = {"hooks": hooks, "memory": memory, "progress": progress}
        effects = sweep(model, tokens, metric=metric, mask=mask, **how).effect
        correlation = rank_correlation(scores, effects.abs())
    return Importance(
        importance=scores,
        exact=effects,
        per_example=per_example,
        weights=examples.weights,
        rank_correlation=correlation,
        metric=metric_name(metric),
        layers_normalized=normalize_layers,
    )


def gate_gradients(
    model: Any, examples: Examples, metric: str | Metric, *, hooks: Hooks = ()
) -> Float[Tensor, "layer head example"]:
    """∂metric/∂ξ of each example, all heads at ξ = 1."""
    check_gradients()
    config, size = model.config, (len(examples), 1, model.config.n_heads, 1)
    device = examples.tokens.device
    gates = [torch.ones(size, device=device, requires_grad=True) for _ in range(config.n_layers)]
    gated = [(SITES["z"].format(n), _gate(xi)) for n, xi in enumerate(gates)]
    with evaluating(model, gradients=True):
        logits = model(examples.tokens, mask=examples.mask, hooks=[*hooks, *gated])
        values = measured(measure_of(metric, logits.detach()), logits, examples)
        if not values.requires_grad:
            raise ValueError(
                f"the metric {metric_name(metric)!r} has no gradient; take one that is smooth in "
                "the logits, such as 'logit_difference'"
            )
        total = values.masked_fill(examples.weights == 0, 0.0).sum()
        found = torch.autograd.grad(total, gates)
    return torch.stack([g.reshape(len(examples), -1).T for g in found])


def _gate(xi: Tensor) -> Hook:
    return lambda z, _: z * xi.to(z.dtype)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, ties sharing their mean rank; NaN if either is constant."""
    import pandas

    values = (x.detach().flatten().cpu().double().numpy() for x in (a, b))
    ranks = [torch.tensor(pandas.Series(x).rank().tolist()) for x in values]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1]) if len(ranks[0]) > 1 else float("nan")
