"""Attribution patching: what activation patching would find, to first order, for all at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention import AttentionCall, attend
from interp.hooks import Hooks
from interp.metrics import Metric
from interp.patching.activations import checked_by, n_columns
from interp.patching.gradients import gradients, mean_over_drops, refuse_flat
from interp.patching.outcomes import HeadPatching, PositionPatching, patched
from interp.patching.pairs import Ends, ends_of, recorded
from interp.sweeps import SITES, Examples, Site, absolute_positions, evaluating, metric_name
from interp.sweeps.clean import CallKeeper
from interp.sweeps.edits import HEAD_AXIS
from interp.sweeps.examples import Measure, measured
from interp.sweeps.subject import key_value_heads


def attribution_patching(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    site: Site = "z",
    metric: str | Metric = "logit_difference",
    at: str = "corrupted",
    by: str | None = None,
    qk_correction: bool = True,
    grad_drop: bool = False,
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
) -> HeadPatching | PositionPatching:
    """First-order estimates of `activation_patching`, from a few forward and one backward pass.

    Args:
        model: Ours, or a wrapped one that gradients flow through.
        clean: Tokens or a Batch: its targets are asked.
        corrupted: Tokens or a Batch of the same shape and padding.
        site: What would be carried over: z, q, k, v, pattern, attn_out, mlp_out or resid.
        metric: See `activation_patching`; it must be differentiable.
        at: Where the gradient is taken, which is the run that would be patched: "corrupted"
            estimates denoising, "clean" noising.
        by: See `activation_patching`.
        qk_correction: For q and k, which act through a softmax that is often saturated, take the
            change of z as it is, Δ = g_z · (P′V − PV), from one more fused run, and only what
            follows to first order (the correction of AtP*; no pattern is held). For "k", by head.
        grad_drop: Where what an activation does directly and through a later layer cancels, or two
            layers do, the gradient is 0 and may yet belie a large effect. Take it once for each
            layer with what that layer writes held fixed, and give the mean of the estimates'
            sizes: 0 or more, no sign (GradDrop of AtP*; a backward pass a layer). For all sites but
            resid, the estimate with the site's own layer held is 0 and left out: the sum over the
            others, divided by L − 1. Sizes are of each example, before the mean over the batch.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.

    Raises:
        TypeError: `qk_correction` or `grad_drop` is no bool, or there is no model to run.
        ValueError: There is no such site or end, or the metric has no gradient, or, as "kl" at
            "clean", one that is 0 for everything; `grad_drop` of a wrapped model, or of one layer.

    Source: Nanda 2023, "Attribution Patching"; Kramár et al. 2024, "AtP*".
    """
    _check_how(metric, at, qk_correction=qk_correction, grad_drop=grad_drop)
    by = checked_by(model, site, by)
    direction = "denoising" if at == "corrupted" else "noising"
    ends = ends_of(
        model, clean, corrupted, direction=direction, metric=metric, mask=mask, hooks=hooks
    )
    corrected = qk_correction and site in ("q", "k")
    if corrected and site == "k" and by == "position":
        raise ValueError("a corrected estimate for keys is by head; or pass qk_correction=False")
    moved = (_moved_z if corrected else _moved)(model, ends, site, hooks)

    def effects(slopes: dict[str, Tensor]) -> Float[Tensor, "layer column B"]:
        return torch.stack([_columns(x, ends, site, by, model) for x in moved.terms(slopes)])

    names = list(moved.changes)
    if grad_drop:
        found = mean_over_drops(model, ends, names, effects, hooks, written=site != "resid")
    else:
        found = effects(gradients(model, ends.base, names, ends.measure, hooks=hooks))
    about = {"direction": direction, "site": site, "metric": metric_name(metric)}
    about["method"] = "attribution, grad drop" if grad_drop else "attribution"
    return patched(found, (moved.base, moved.source), ends.base.weights, by=by, **about)


def _check_how(metric: str | Metric, at: str, **switches: bool) -> None:
    if at not in ("clean", "corrupted"):
        raise ValueError(f"the gradient is taken at 'clean' or 'corrupted', got {at!r}")
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} is True or False, got {value!r}")
    if at == "clean":
        refuse_flat(metric, "Take at='corrupted'")


@dataclass(frozen=True, eq=False)
class _Moved:
    """What would be carried over in each layer, and the metric of both ends.

    Attributes:
        changes: Source minus base, by the name of the activation whose gradient it is taken with.
        base: The metric of the base.
        source: That of the source.
        folded: From Δ · gradient, summed over its last axis, to [B T] or [B T head].
    """

    changes: dict[str, Tensor]
    base: Float[Tensor, "B"]
    source: Float[Tensor, "B"]
    folded: Callable[[Tensor], Tensor]

    def terms(self, slopes: dict[str, Tensor]) -> list[Tensor]:
        """Δ · gradient of each layer."""
        return [self.folded((slopes[n] * change).sum(-1)) for n, change in self.changes.items()]


def _moved(model: Any, ends: Ends, site: Site, hooks: Hooks) -> _Moved:
    names = [SITES[site].format(layer) for layer in range(model.config.n_layers)]
    base = recorded(model, ends.base, names, ends.measure, hooks)
    source = recorded(model, ends.source, names, ends.measure, hooks)
    changes = {name: source.cache[name] - base.cache[name] for name in names}

    def rows_first(x: Tensor) -> Tensor:
        return x.transpose(1, 2) if HEAD_AXIS.get(site) == 1 else x

    return _Moved(changes, base.values, source.values, rows_first)


def _moved_z(model: Any, ends: Ends, site: Site, hooks: Hooks) -> _Moved:
    """The change of z that other queries or keys make."""
    base, base_values = _calls(model, ends.base, ends.measure, hooks)
    source, source_values = _calls(model, ends.source, ends.measure, hooks)
    changes = {}
    with evaluating(model):
        for layer in range(model.config.n_layers):
            own, other = base[layer], source[layer]
            moved = replace(own, q=other.q) if site == "q" else replace(own, k=other.k)
            change = attend(moved) - attend(own)
            changes[SITES["z"].format(layer)] = change.transpose(1, 2)

    def over_queries(x: Tensor) -> Tensor:
        """What a key head's query heads change, together."""
        return x.unflatten(2, (key_value_heads(model), -1)).sum(-1) if site == "k" else x

    return _Moved(changes, base_values, source_values, over_queries)


def _calls(
    model: Any, examples: Examples, measure: Measure, hooks: Hooks
) -> tuple[dict[int, AttentionCall], Float[Tensor, "B"]]:
    keeper = CallKeeper()
    with evaluating(model):
        logits = model(examples.tokens, mask=examples.mask, hooks=hooks, kernel=keeper)
        return keeper.calls, measured(measure, logits, examples)


def _columns(x: Tensor, ends: Ends, site: Site, by: str, model: Any) -> Float[Tensor, "column B"]:
    """Sum [B T] or [B T H] over what the columns are not."""
    if by == "head":
        return x.sum(1).T
    x = x.sum(2) if x.ndim == 3 else x
    real = ends.base.mask
    x = x if real is None else x.masked_fill(~real, 0.0)
    n = n_columns(model, ends, site, by)
    where = absolute_positions(ends.base).expand(len(ends.base), -1)
    return x.new_zeros(len(x), n).scatter_add_(1, where, x).T
