"""Weights in a form that is easier to read, computing the same: copies, the source untouched.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", and the weight
processing of TransformerLens (Nanda & Bloom 2022).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp.config import BIASES, TransformerConfig
from interp.model import Transformer
from interp.weights import check_own

Weights = dict[str, Tensor]

_WITHOUT_GAIN = {"layer_norm": "layer_norm_pre", "rms_norm": "rms_norm_pre"}


def fold_layer_norm(model: Transformer) -> Transformer:
    """Multiply the gains and biases of the norms before each part into the matrices that read them.

    The copy's norms only centre and scale, so that what a matrix reads is the residual stream
    itself. Behind a LayerNorm the matrices also lose their mean over d_model, which the norm
    removes anyway. A tied embedding is untied. Norms after a part, and of queries and keys, stay.

    Raises:
        ValueError: Positions are added behind the norm (shortformer), where a gain can't pass.
    """
    check_own(model)
    config = model.config
    if config.positional == "shortformer":
        raise ValueError(
            "positional='shortformer' adds positions behind the norm, where its gain can't be "
            "folded; read such a model as it is"
        )
    weights = _weights(model)
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        _fold(weights, f"{block}.ln1", [f"{block}.attn.qkv"], config.normalization)
        if config.d_mlp is not None:
            readers = [f"{block}.mlp.up", *([f"{block}.mlp.gate"] if config.gated_mlp else [])]
            _fold(weights, f"{block}.ln2", readers, config.normalization)
    _fold(weights, "ln_final", ["unembed"], config.normalization_at_end)
    return _rebuilt(model, weights, **_folded(config))


def _folded(config: TransformerConfig) -> dict[str, Any]:
    before = _WITHOUT_GAIN.get(config.normalization, config.normalization)
    end = _WITHOUT_GAIN.get(config.normalization_at_end, config.normalization_at_end)
    changes: dict[str, Any] = {"normalization": before, "final_normalization": end}
    shifts = config.has_bias("norm")
    gains: list[str] = []
    if shifts and config.normalization == "layer_norm":
        gains += [
            "qkv",
            *(["mlp"] if config.d_mlp else []),
            *(["gate"] if config.gated_mlp else []),
        ]
    if shifts and config.normalization_at_end == "layer_norm":
        gains.append("unembed")
    return changes | {"bias": _with_biases(config, gains), "tied_embeddings": False}


def _fold(weights: Weights, norm: str, readers: list[str], kind: str) -> None:
    """Move one norm's gain and bias into the linear maps behind it."""
    gain, shift = weights.pop(f"{norm}.weight", None), weights.pop(f"{norm}.bias", None)
    for reader in readers:
        weight = weights[f"{reader}.weight"]
        if shift is not None:
            bias = weights.get(f"{reader}.bias", weight.new_zeros(weight.shape[0]))
            weights[f"{reader}.bias"] = bias + weight @ shift
        if gain is not None:
            weight = weight * gain
        if kind.startswith("layer"):
            weight = weight - weight.mean(1, keepdim=True)
        weights[f"{reader}.weight"] = weight


def center_writing_weights(model: Transformer) -> Transformer:
    """Subtract their mean over d_model from all weights that write to the residual stream.

    Every reader is a LayerNorm, which removes that mean. A tied embedding is untied: what writes is
    centred, what reads stays.

    Raises:
        ValueError: A reader is no LayerNorm, or a norm stands between a part and the stream.
    """
    check_own(model)
    config = model.config
    kinds = {
        "normalization": config.normalization,
        "final_normalization": config.normalization_at_end,
    }
    for name, kind in kinds.items():
        if not kind.startswith("layer_norm"):
            raise ValueError(
                f"{name}={kind!r}: the mean of the residual stream is read; "
                "only LayerNorm removes it"
            )
    if config.post_normalization != "none":
        raise ValueError(
            f"post_normalization={config.post_normalization!r} stands between the weights and the "
            "stream; they can't be centred"
        )
    weights = _weights(model)
    for name, weight in weights.items():
        if name == "embed.weight" or (name == "pos_embed.weight" and _adds_positions(config)):
            weights[name] = weight - weight.mean(1, keepdim=True)
        elif name.endswith(("attn.o.weight", "attn.o.bias", "mlp.down.weight", "mlp.down.bias")):
            weights[name] = weight - weight.mean(0, keepdim=True)
    return _rebuilt(model, weights, tied_embeddings=False)


def _adds_positions(config: TransformerConfig) -> bool:
    return config.positional == "learned"


def center_unembed(model: Transformer) -> Transformer:
    """Subtract from W_U and b_U their mean over the vocabulary: log-probabilities stay.

    Raises:
        ValueError: The logits are capped, which a shift does not pass.
    """
    check_own(model)
    if model.config.logit_soft_cap is not None:
        raise ValueError(
            f"logit_soft_cap={model.config.logit_soft_cap}: logits that are capped can't be shifted"
        )
    weights = _weights(model)
    for name in ("unembed.weight", "unembed.bias"):
        if name in weights:
            weights[name] = weights[name] - weights[name].mean(0, keepdim=True)
    return _rebuilt(model, weights, tied_embeddings=False)


def fold_value_biases(model: Transformer) -> Transformer:
    """Move b_V into b_O: each row of a pattern sums to 1, so a head writes b_V W_O anyway.

    Only a row that sees no key (a pad's) writes otherwise.
    """
    check_own(model)
    config, weights = model.config, _weights(model)
    if not config.has_bias("qkv"):
        return _rebuilt(model, weights)
    width = config.kv_heads * config.head_width
    for layer in range(config.n_layers):
        attn = f"blocks.{layer}.attn"
        bias, out = weights[f"{attn}.qkv.bias"], weights[f"{attn}.o.weight"]
        values = bias[-width:].unflatten(0, (config.kv_heads, -1))
        values = values.repeat_interleave(config.n_heads // config.kv_heads, 0).flatten()
        old = weights.get(f"{attn}.o.bias", out.new_zeros(out.shape[0]))
        weights[f"{attn}.o.bias"] = old + out @ values
        weights[f"{attn}.qkv.bias"] = torch.cat([bias[:-width], torch.zeros_like(bias[-width:])])
    return _rebuilt(model, weights, bias=_with_biases(config, ["o"]))


def _with_biases(config: TransformerConfig, more: list[str]) -> bool | tuple[str, ...]:
    parts = tuple(part for part in BIASES if config.has_bias(part) or part in more)
    return config.bias if all(config.has_bias(part) for part in more) else parts


def _weights(model: Transformer) -> Weights:
    """Every parameter, in float64, tied ones twice."""
    return {name: x.detach().double() for name, x in model.state_dict().items()}


@torch.no_grad()
def _rebuilt(model: Transformer, weights: Weights, **changes: Any) -> Transformer:
    built = Transformer(replace(model.config, **changes)).to(model.embed.weight)
    for name, stored in built.state_dict().items():
        given = weights.get(name)
        if given is None and name.endswith(".bias"):
            given = torch.zeros_like(stored)  # a bias that the source did not have
        assert given is not None, name
        stored.copy_(given)
    built.tokenizer = model.tokenizer
    return built.train(model.training)
