"""Parts of a model that are held all through training, to see what the rest learns without them.

Source: Singh et al. 2024, "What needs to go right for an induction head?", who hold attention
patterns ("clamping") while the other weights train; and who cut all heads but one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import Causal
from interp.attention.masks import positions_of
from interp.config import TransformerConfig
from interp.hooks import HookPoint, Hooks, matches, nothing_called
from interp.model import Transformer
from interp.names import hook_names
from interp.probes.rows import after_earlier_same
from interp.training.chosen import Head, Layers, chosen_heads

UNHELD = ("hook_attn_scores", "hook_pattern")


@dataclass(frozen=True, kw_only=True)
class Clamp:
    """Something that is held, in every step and in the run's evaluations.

    One of `heads`, `layers` and `hook` says what is held. Clamps are no part of the saved weights:
    `Clamped` holds a loaded model again.

    Attributes:
        to: What it is held at. For heads, their pattern at one of `PATTERNS`, or their z at one of
            `VALUES`; for a hook, one of `VALUES`.
        heads: Pairs (layer, head).
        layers: All heads of these layers.
        hook: Another activation's name, or a glob of several.
    """

    to: str
    heads: tuple[Head, ...] | None = None
    layers: Layers | None = None
    hook: str | None = None


# --- what patterns are held at: tokens, and which are real, to [B Q K] -------------------------


def previous_token(tokens: Tensor, real: Tensor) -> Float[Tensor, "batch q k"]:
    """All weight on the real token before; the first token's row is 0."""
    position = positions_of(real)
    back = position[:, :, None] - position[:, None, :]
    return ((back == 1) & _pairs(real)).float()


def match(tokens: Tensor, real: Tensor) -> Float[Tensor, "batch q k"]:
    """Uniform over the tokens that followed earlier occurrences of the row's own token.

    What a perfect induction head attends to. A row whose token is new is 0: the head writes nothing
    there.
    """
    return _spread(after_earlier_same(tokens, real))


def uniform(tokens: Tensor, real: Tensor) -> Float[Tensor, "batch q k"]:
    """Uniform over the row's own token and all before."""
    return _spread(_pairs(real) & _before(real))


def first_token(tokens: Tensor, real: Tensor) -> Float[Tensor, "batch q k"]:
    """All weight on the first real token."""
    first = positions_of(real) == 0
    return (_pairs(real) & first[:, None, :]).float()


def _pairs(real: Bool[Tensor, "batch pos"]) -> Bool[Tensor, "batch q k"]:
    return real[:, :, None] & real[:, None, :]


def _before(real: Bool[Tensor, "batch pos"]) -> Bool[Tensor, "batch q k"]:
    position = positions_of(real)
    return position[:, None, :] <= position[:, :, None]


def _spread(seen: Bool[Tensor, "batch q k"]) -> Float[Tensor, "batch q k"]:
    return seen / seen.sum(-1, keepdim=True).clamp(min=1)


PATTERNS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "previous_token": previous_token,
    "match": match,
    "uniform": uniform,
    "first_token": first_token,
}
"""What a head's pattern can be held at; a row without a target has no weight at all."""


# --- what activations are held at: x [B T …], and which tokens are real ------------------------


def zero(x: Tensor, real: Tensor) -> Tensor:
    """Nothing."""
    return torch.zeros_like(x)


def mean(x: Float[Tensor, "batch pos *rest"], real: Tensor) -> Tensor:
    """At each position the mean over this batch's examples; gradients flow through it."""
    position = positions_of(real).clamp(min=0)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # bfloat16 can't count beyond 256
    index, parts = position.flatten(), (wide * _like(real, wide)).flatten(0, 1)
    sums = wide.new_zeros(real.shape[1], *x.shape[2:]).index_add(0, index, parts)
    counts = wide.new_zeros(real.shape[1]).index_add(0, index, real.flatten().to(wide.dtype))
    means = sums / counts.clamp(min=1).view(-1, *[1] * (x.dim() - 2))
    return means[position].to(x.dtype)


def grand_mean(x: Float[Tensor, "batch pos *rest"], real: Tensor) -> Tensor:
    """One mean over this batch's real tokens; gradients flow through it."""
    total = (x * _like(real, x)).sum((0, 1), keepdim=True)
    return (total / real.sum().clamp(min=1)).expand_as(x)


def _like(real: Tensor, x: Tensor) -> Tensor:
    return real.to(x.dtype).view(*real.shape, *[1] * (x.dim() - 2))


VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "zero": zero,
    "mean": mean,
    "grand_mean": grand_mean,
}
"""What a head's z, or any other activation, can be held at."""


# --- holding -----------------------------------------------------------------------------------


def check_clamps(clamps: Sequence[Clamp], config: TransformerConfig) -> None:
    """Refuse what this model can't be held at.

    Raises:
        ValueError: An unknown name, head or layer; a pattern in a layer that isn't causal; or what
            is held twice.
        LookupError: No activation has the hook's name.
    """
    seen: set[object] = set()
    for clamp in clamps:
        heads = _held_heads(clamp, config)
        own = set(heads if clamp.hook is None else _held_by_name(clamp.hook, config))
        if twice := own & seen:
            raise ValueError(f"{min(map(str, twice))} is named twice: one clamp holds it")
        seen |= own
        for layer, _ in heads:
            if clamp.to in PATTERNS and config.rule(layer) != Causal():
                kind, _ = config.attention_of(layer)
                raise ValueError(
                    f"a pattern is held in causal layers; layer {layer} has attention {kind!r}"
                )


def held(
    clamps: Sequence[Clamp],
    config: TransformerConfig,
    tokens: Int[Tensor, "batch pos"],
    mask: Bool[Tensor, "batch pos"] | None = None,
) -> Hooks:
    """Hooks that hold a model for these tokens: `model(tokens, hooks=held(…))`."""
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    hooks: list[tuple[str, Callable[[Tensor, HookPoint], Tensor]]] = []
    for clamp in clamps:
        if clamp.hook is not None:
            hold = partial(_hold, value=VALUES[clamp.to], real=real)
            hooks += [(name, hold) for name in _held_names(clamp.hook, config)]
            continue
        heads = _held_heads(clamp, config)
        for layer in sorted({layer for layer, _ in heads}):
            chosen = torch.zeros(config.n_heads, dtype=torch.bool, device=tokens.device)
            chosen[[head for at, head in heads if at == layer]] = True
            if clamp.to in PATTERNS:
                target = PATTERNS[clamp.to](tokens, real)[:, None]
                hold = partial(_hold_pattern, target=target, chosen=chosen)
                hooks.append((f"blocks.{layer}.attn.hook_pattern", hold))
            else:
                hold = partial(_hold, value=VALUES[clamp.to], real=real, chosen=chosen[:, None])
                hooks.append((f"blocks.{layer}.attn.hook_z", hold))
    return hooks


def _hold_pattern(
    pattern: Float[Tensor, "batch head q k"], hook: HookPoint, *, target: Tensor, chosen: Tensor
) -> Tensor:
    # `where`, not indexing: what is not used stays on the graph, with gradients of 0, so that
    # processes that share gradients wait for none.
    return torch.where(chosen[:, None, None], target.to(pattern.dtype), pattern)


def _hold(
    x: Tensor,
    hook: HookPoint,
    *,
    value: Callable[[Tensor, Tensor], Tensor],
    real: Tensor,
    chosen: Tensor | None = None,
) -> Tensor:
    chosen = torch.ones((), dtype=torch.bool, device=x.device) if chosen is None else chosen
    return torch.where(chosen, value(x, real), x)


def _held_heads(clamp: Clamp, config: TransformerConfig) -> list[Head]:
    """The heads that are held; none if it is something else."""
    given = [name for name in ("heads", "layers", "hook") if getattr(clamp, name) is not None]
    if len(given) != 1:
        raise ValueError(f"a clamp wants one of heads, layers and hook; got {given or 'none'}")
    if clamp.hook is not None and not isinstance(clamp.hook, str):
        raise ValueError(f"a clamp's hook is the name of an activation; got {clamp.hook!r}")
    known = VALUES if clamp.hook is not None else PATTERNS | VALUES
    if clamp.to not in known:
        raise ValueError(f"a clamp's `to` is one of {', '.join(known)}; got {clamp.to!r}")
    if clamp.hook is not None:
        return []
    return chosen_heads(config, layers=clamp.layers, heads=clamp.heads)


def _held_names(hook: str, config: TransformerConfig) -> list[str]:
    names = [name for name in hook_names(config) if matches(hook, name)]
    if not names:
        raise LookupError(nothing_called(hook, hook_names(config)))
    odd = [name for name in names if name.endswith(UNHELD)]
    if odd:
        raise ValueError(f"{odd[0]!r} is no activation [batch pos …]; hold patterns with heads=")
    return names


def _held_by_name(hook: str, config: TransformerConfig) -> list[object]:
    """The activations that a hook's clamp holds; and the heads, where they are a layer's z."""
    names = _held_names(hook, config)
    layers = [n for n in range(config.n_layers) if f"blocks.{n}.attn.hook_z" in names]
    return [*names, *((layer, head) for layer in layers for head in range(config.n_heads))]


class Clamped:
    """A model that is held in every call: probes and metrics take it as they take the model.

        clamped = Clamped(run.model, run_clamps)
        probes.head_statistics(clamped, tokens)

    Hooks of the caller run behind the clamps.
    """

    def __init__(self, model: Transformer, clamps: Sequence[Clamp]) -> None:
        check_clamps(clamps, model.config)
        self.model, self.clamps = model, tuple(clamps)

    @property
    def config(self) -> TransformerConfig:
        """The model's."""
        return self.model.config

    @property
    def blocks(self) -> Sequence[Any]:
        """The model's layers."""
        return self.model.blocks

    @property
    def ln_final(self) -> Any:
        """The model's."""
        return self.model.ln_final

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The model's unembedding."""
        return self.model.W_U

    def __call__(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        hooks: Hooks = (),
        stop_at_layer: int | None = None,
        **call: Any,
    ) -> Any:
        """The model's forward pass, held; all arguments are its own.

        Raises:
            ValueError: `start_at_layer` or `kv_cache`: what is held depends on all tokens.
        """
        if call.get("start_at_layer") is not None or call.get("kv_cache") is not None:
            raise ValueError("a clamped model wants whole sequences of tokens in each call")
        ends = "both" if stop_at_layer is None else "embed"
        offered = set(hook_names(self.config, last=stop_at_layer, ends=ends))
        clamps = held(self.clamps, self.config, tokens, mask)
        hooks = [*(pair for pair in clamps if pair[0] in offered), *hooks]
        return self.model(tokens, mask=mask, hooks=hooks, stop_at_layer=stop_at_layer, **call)
