"""Gradients at activations, as they are and with one layer's writes held fixed at a time."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import Hook, HookPoint, Hooks
from interp.model import Transformer
from interp.patching.pairs import Ends
from interp.sweeps import SITES, Examples, evaluating
from interp.sweeps.examples import Measure, check_gradients, measured


def gradients(
    model: Any, examples: Examples, names: list[str], measure: Measure, *, hooks: Hooks = ()
) -> dict[str, Tensor]:
    """The gradient of each example's metric with respect to its activations, by name.

    Raises:
        RuntimeError: It is called under `torch.inference_mode()`.
        ValueError: The metric has no gradient.
    """
    check_gradients()
    nudges: dict[str, Tensor] = {}

    def nudge(name: str) -> Hook:
        def add_nothing(x: Tensor, _: object) -> Tensor:
            nudges[name] = torch.zeros_like(x, requires_grad=True)
            return x + nudges[name]

        return add_nothing

    own: list[tuple[str, Callable]] = [(name, nudge(name)) for name in names]
    with evaluating(model, gradients=True):
        logits = model(examples.tokens, mask=examples.mask, hooks=[*hooks, *own])
        values = measured(measure, logits, examples)
        if not values.requires_grad:
            raise ValueError(
                "this metric has no gradient; take one that is smooth in the logits, such as "
                "'logit_difference'"
            )
        total = values.masked_fill(examples.weights == 0, 0.0).sum()
        found = torch.autograd.grad(total, list(nudges.values()), allow_unused=True)
    zero = torch.zeros_like
    pairs = zip(nudges.items(), found, strict=True)
    return {name: zero(x) if g is None else g for (name, x), g in pairs}


def refuse_flat(metric: object, instead: str) -> None:
    """Refuse a metric whose gradient is asked for where it is least, and so 0 for everything.

    Raises:
        ValueError: It is KL to the clean run, whose gradient at that run vanishes.
    """
    if metric == "kl":
        raise ValueError(
            "metric='kl' compares with the clean run, and its gradient vanishes where the two runs "
            f"are the same: every estimate would be 0. {instead}, or another metric"
        )


def mean_over_drops(
    model: Any,
    ends: Ends,
    names: list[str],
    effects: Callable[[dict[str, Tensor]], Float[Tensor, "layer column B"]],
    hooks: Hooks,
    *,
    written: bool,
) -> Float[Tensor, "layer column B"]:
    """The mean size of each estimate over gradients with one layer's writes held fixed.

    Args:
        model: Ours.
        ends: The gradient is taken at their base.
        names: The activations.
        effects: Makes estimates of gradients.
        hooks: What everything runs under.
        written: The activations are parts of their layers, whose effect is 0 when these are held
            themselves: that one is left out. Not of the residual stream, which enters them.

    Raises:
        ValueError: The model is wrapped, or has one layer.

    Source: Kramár et al. 2024, "AtP*", section 3.1.2. There a node is a head at one position; here
    a head, or a position of a layer, as in `activation_patching`.
    """
    n_layers = model.config.n_layers
    if not isinstance(model, Transformer) or n_layers < 2:
        raise ValueError(
            "grad_drop holds what each other layer writes: it needs a Transformer of two layers or "
            "more"
        )
    total = None
    for layer in range(n_layers):
        held = [*hooks, *_held(model, layer)]
        found = effects(gradients(model, ends.base, names, ends.measure, hooks=held)).abs()
        if written:
            found[layer] = 0.0
        total = found if total is None else total + found
    assert total is not None
    return total / (n_layers - written)


def _held(model: Transformer, layer: int) -> list[tuple[str, Hook]]:
    sites = ("attn_out",) if model.config.d_mlp is None else ("attn_out", "mlp_out")
    return [(SITES[site].format(layer), _without_gradient) for site in sites]


def _without_gradient(x: Tensor, point: HookPoint) -> Tensor:
    return x.detach()
