"""How far one model's attention is from another's: checkpoints, fine-tunes, interventions."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import fused
from interp.attention.tiles import MEMORY
from interp.hooks import Hooks
from interp.probes.observed import Layer, Model, Progress, check_model, mixed, observe
from interp.probes.rows import counted_rows


def pattern_divergence(
    model_a: Model,
    model_b: Model,
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    hooks_b: Hooks = (),
    progress: Progress | None = None,
    memory: int = MEMORY,
) -> Float[Tensor, "layer head"]:
    """KL(a ‖ b) between the patterns of the same heads on the same tokens, in nats.

    The mean over rows; 0 for equal patterns, ∞ where a attends to what b may not see.

    Args:
        model_a: A `Transformer`, or a wrapped model; its q and k are held while b runs.
        model_b: One with as many layers and heads; it may be the same one.
        tokens: Token ids.
        mask: True for real tokens.
        rows: Which rows count. None: all real ones but those of a's BOS.
        hooks: Interventions to run a under.
        hooks_b: Interventions to run b under.
        progress: Called with how many layers are compared, and out of how many.
        memory: Bytes that may be held at a time beside the forward passes.

    Raises:
        TypeError: There is no model to run.
        ValueError: The models have other numbers of layers or heads.
    """
    check_model(model_a)
    check_model(model_b)
    sizes = [(m.config.n_layers, m.config.n_heads) for m in (model_a, model_b)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"models are compared head by head; got (layers, heads) {sizes}")
    counted = counted_rows(tokens, mask=mask, rows=rows, bos_token=model_a.config.bos_token)
    first = _Kept()
    observe(model_a, tokens, first.look, mask=mask, hooks=hooks)
    second = _Compared(first.layers, counted, progress, memory)
    observe(model_b, tokens, second.look, mask=mask, hooks=hooks_b)
    return torch.stack([second.found[layer] for layer in sorted(second.found)])


def _plain_z(layer: Layer) -> Tensor:
    return fused(layer.call) if layer.pattern is None else mixed(layer)


@dataclass
class _Kept:
    """The first model's layers."""

    layers: dict[int, Layer] = field(default_factory=dict)

    def look(self, layer: Layer) -> Tensor:
        self.layers[layer.index] = layer
        return _plain_z(layer)


@dataclass
class _Compared:
    """The second model's, against them."""

    others: dict[int, Layer]
    counted: Bool[Tensor, "batch pos"]
    progress: Progress | None
    memory: int
    found: dict[int, Float[Tensor, " head"]] = field(default_factory=dict)

    def look(self, layer: Layer) -> Tensor:
        rows = _divergence(self.others.pop(layer.index), layer, self.memory)
        rows = rows.masked_fill(~self.counted[:, None], float("nan"))
        self.found[layer.index] = rows.transpose(0, 1).flatten(1).nanmean(-1)
        if self.progress is not None:
            self.progress(len(self.found), len(self.found) + len(self.others))
        return _plain_z(layer)


def _divergence(a: Layer, b: Layer, memory: int) -> Float[Tensor, "batch head q"]:
    if a.pattern is None and b.pattern is None:
        return a.view(memory).divergence_to(b.view(memory))
    p, r = (x.view(memory).pattern() if x.pattern is None else x.pattern.float() for x in (a, b))
    log_ratio = p.clamp(min=torch.finfo(p.dtype).tiny).log() - r.log()
    return torch.where(p > 0, p * log_ratio, 0.0).sum(-1).clamp(min=0.0)
