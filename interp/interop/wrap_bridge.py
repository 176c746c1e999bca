"""A TransformerBridge (TransformerLens 4) as it is, observed through its own hooks.

The bridge computes its patterns, eagerly, as it always does; our kernel then computes each layer's
z from the queries, keys and values that its hooks show, and that z is what flows on. What those
hooks do not show (scale, rotation, cap) is measured on one sequence when the bridge is wrapped, and
a bridge whose attention is not what its q, k and v say is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.attention import (
    MASKS,
    AttentionCall,
    Causal,
    Full,
    Kernel,
    Rule,
    Visible,
    materialised,
)
from interp.attention.masks import positions_of
from interp.attention.positions import rotate
from interp.hooks import Tap
from interp.interop.bridge import bridge_parts, probe_tokens
from interp.interop.families.common import kinds_by_layer
from interp.interop.foreign import ForeignBlock, ForeignNorm, norm_by_effect
from interp.interop.observed import Observed, mixed_by
from interp.interop.wrapped_config import WrappedConfig

Seen = dict[str, Tensor]

_one_at_a_time = RLock()  # a bridge's hooks live on its modules, so that threads would mix them


@dataclass(frozen=True)
class BridgeHeads:
    """One layer's heads in a bridge."""

    attn: Any

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """From z to what the heads write."""
        return self.attn.W_O.detach()


@dataclass(frozen=True)
class LayerOfBridge:
    """How a layer's attention follows from q, k and v.

    Attributes:
        rule: Who may see whom.
        scale: What q·k is multiplied with.
        soft_cap: Cap of the scores, or None.
    """

    rule: Rule
    scale: float
    soft_cap: float | None


class WrappedBridge(Observed):
    """A bridge, as it was given. Calls run one at a time.

    Attributes:
        bridge: The bridge itself.
    """

    def __init__(self, bridge: Any) -> None:
        self.bridge, self.tokenizer = bridge, None
        self._model = bridge_parts(bridge)
        tokens = probe_tokens(bridge.cfg.d_vocab, bridge.cfg.n_ctx, bridge.cfg.device)
        with torch.no_grad(), _one_at_a_time:
            _, cache = bridge.run_with_cache(tokens)
        seen: Mapping[str, Tensor] = dict(cache.items())
        self._has_rotated = "blocks.0.attn.hook_rot_q" in seen
        self._has_angles = not self._has_rotated and "blocks.0.attn.hook_cos" in seen
        self.config = self._config(seen)
        heads = [BridgeHeads(bridge.blocks[layer].attn) for layer in range(self.config.n_layers)]
        self.blocks = [ForeignBlock(h) for h in heads]
        rules = _rules(bridge, self._model, self.config.n_layers)
        self._layers = [self._measured(seen, n, rule) for n, rule in enumerate(rules)]

    def _config(self, seen: Mapping[str, Tensor]) -> WrappedConfig:
        theirs, prefix = self.bridge.cfg, "blocks.0.attn."
        q, k, v = (seen[f"{prefix}{name}"] for name in (*self._query_names(), "hook_v"))
        bos = getattr(getattr(self._model, "config", None), "bos_token_id", None)
        return WrappedConfig(
            n_layers=theirs.n_layers,
            n_heads=q.shape[2],
            n_kv_heads=k.shape[2],
            d_head=v.shape[3],
            d_model=theirs.d_model,
            d_vocab=theirs.d_vocab,
            n_ctx=theirs.n_ctx,
            rotary=self._has_rotated,
            bos_token=bos if isinstance(bos, int) and 0 <= bos < theirs.d_vocab else None,
            architecture=str(theirs.architecture),
        )

    def _query_names(self) -> tuple[str, str]:
        return ("hook_rot_q", "hook_rot_k") if self._has_rotated else ("hook_q", "hook_k")

    def _measured(self, seen: Mapping[str, Tensor], layer: int, rule: Rule) -> LayerOfBridge:
        prefix, given = f"blocks.{layer}.attn.", self.bridge.cfg.attn_scores_soft_cap
        cap = given if given is not None and given > 0 else None
        here = {name.removeprefix(prefix): x for name, x in seen.items() if name.startswith(prefix)}
        call = self._call(here, LayerOfBridge(rule, 1.0, cap), None, layer)
        apart = {
            scale: float((_z(call, scale) - here["hook_z"]).abs().max())
            for scale in _likely_scales(call, here)
        }
        scale = min(apart, key=lambda scale: apart[scale])
        if not apart[scale] < 1e-4 * max(1.0, float(here["hook_z"].abs().max())):
            raise TypeError(
                f"{self.config.architecture}: the attention of layer {layer} is not what its q, k "
                f"and v say (z is {apart[scale]:.2g} apart), so it can't be observed"
            )
        return LayerOfBridge(rule, scale, cap)

    @property
    def module(self) -> nn.Module:
        """The bridge itself."""
        return self.bridge

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding."""
        return self.bridge.W_U.detach()

    @cached_property
    def ln_final(self) -> ForeignNorm:
        """The norm before the unembedding."""
        width, norm = self.config.d_model, self.bridge.ln_final
        if self.bridge.cfg.normalization_type is None:
            return ForeignNorm("none", self.W_U.new_ones(width))
        with torch.no_grad(), _one_at_a_time:
            return norm_by_effect(lambda x: norm(x[None, None])[0, 0], width, self.W_U)

    def _forward(
        self, tokens: Tensor, mask: Tensor | None, tap: Tap, kernel: Kernel, *, unembed: bool
    ) -> Tensor:
        if mask is not None and not bool((mask[:, :-1] >= mask[:, 1:]).all()):
            raise ValueError(
                "a wrapped bridge wants pads on the right, so that real tokens stand where they "
                "would without padding"
            )
        given = {} if mask is None else {"attention_mask": mask.long()}
        last: Seen = {}
        hooks = [
            pair
            for layer in range(self.config.n_layers)
            for pair in self._hooks_of(layer, mask, tap.under(f"blocks.{layer}.attn"), kernel)
        ]
        hooks.append((f"blocks.{self.config.n_layers - 1}.hook_out", _note(last, "resid")))
        with _one_at_a_time:
            logits = self.bridge.run_with_hooks(
                tokens, return_type="logits", fwd_hooks=hooks, **given
            )
        return logits if unembed else last["resid"]

    def _hooks_of(self, layer: int, mask: Tensor | None, tap: Tap, kernel: Kernel) -> list[Any]:
        seen: Seen = {}

        def offer(name: str) -> Callable[[Tensor, Any], Tensor]:
            def run(x: Tensor, hook: Any) -> Tensor:
                seen[name] = tap(name, x)
                return seen[name]

            return run

        def mix(z: Tensor, hook: Any) -> Tensor:
            call = self._call(seen, self._layers[layer], mask, layer)
            return mixed_by(kernel, call, tap).transpose(1, 2).to(z.dtype)

        names = [*self._query_names(), "hook_v"]
        hooks = [(f"blocks.{layer}.attn.{name}", offer(name)) for name in names]
        if self._has_angles:
            angles = ("hook_cos", "hook_sin")
            hooks += [(f"blocks.{layer}.attn.{name}", _note(seen, name)) for name in angles]
        return [*hooks, (f"blocks.{layer}.attn.hook_z", mix)]

    def _call(
        self, seen: Mapping[str, Tensor], how: LayerOfBridge, mask: Tensor | None, layer: int
    ) -> AttentionCall:
        q, k, v = (seen[name] for name in (*self._query_names(), "hook_v"))
        turn, interleaved = self._turn(seen, q.shape[1])
        if turn is not None:
            q, k = (rotate(x, turn, interleaved=interleaved) for x in (q, k))
        n = q.shape[1]
        position = torch.arange(n, device=q.device)[None] if mask is None else positions_of(mask)
        visible = Visible(how.rule, position, position, mask, mask, in_order=mask is None)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return AttentionCall(q, k, v, visible, how.scale, None, how.soft_cap, layer)

    def _turn(self, seen: Mapping[str, Tensor], n: int) -> tuple[Tensor | None, bool]:
        """Rotations that the bridge applies behind its hooks, and whether by neighbouring pairs."""
        if self._has_angles:
            angles = torch.stack([seen["hook_cos"], seen["hook_sin"]])
            return angles[..., : angles.shape[-1] // 2], False
        rotary = getattr(self._model, "rotary", None)  # of a native model
        if rotary is None:
            return None, False
        table = torch.stack([rotary.cos_cached[:n, ::2], rotary.sin_cached[:n, ::2]])
        return table[:, None], True


def _note(into: Seen, name: str) -> Callable[[Any, Any], None]:
    def run(x: Any, hook: Any) -> None:
        into[name] = x[0] if isinstance(x, tuple) else x

    return run


def _z(call: AttentionCall, scale: float) -> Float[Tensor, "batch pos head d_value"]:
    return materialised(replace(call, scale=scale)).transpose(1, 2)


def _likely_scales(call: AttentionCall, seen: Mapping[str, Tensor]) -> list[float]:
    """What q·k may be multiplied with: the common scales, and what scores and patterns say.

    Some bridges show the pattern in the place of the scores.
    """
    k = call.k.repeat_interleave(call.q.shape[1] // call.k.shape[1], 1)
    products, visible = call.q.float() @ k.float().mT, call.visible.grid()
    scores, pattern = seen["hook_attn_scores"].float(), seen["hook_pattern"].float()
    if call.soft_cap is not None:
        scores = call.soft_cap * torch.atanh((scores / call.soft_cap).clamp(-0.99999, 0.99999))
    at = pattern.argmax(-1, keepdim=True)  # log-ratios to the largest weight are differences
    ratio = pattern.clamp(min=1e-30).log()
    ratio, step = ratio - ratio.gather(-1, at), products - products.gather(-1, at)
    found = [_slope(scores, products, visible), _slope(ratio, step, visible & (pattern > 1e-4))]
    return [call.q.shape[-1] ** -0.5, 1.0, *(x for x in found if x == x)]


def _slope(y: Tensor, x: Tensor, where: Tensor) -> float:
    x, y = x[where.expand_as(x)], y[where.expand_as(y)]
    return float((x * y).sum() / x.square().sum())


def _rules(bridge: Any, model: Any, n_layers: int) -> list[Rule]:
    """Who may see whom in each layer, by the config of what the bridge stands before."""
    if type(model).__name__ == "NativeModel":
        return [Causal() if bridge.cfg.attention_dir == "causal" else Full()] * n_layers
    values = model.config.to_dict()
    local = values.get("attention_layers")
    if local is not None:  # GPT-Neo
        options = {"window": values["window_size"]}
        return [MASKS["window"](**options) if x == "local" else Causal() for x in local]
    kinds = kinds_by_layer(values, n_layers)
    if kinds["attention"] == "causal":
        return [Causal()] * n_layers
    both = zip(kinds["attention"], kinds["attention_options"], strict=True)
    return [MASKS[kind](**options) for kind, options in both]
