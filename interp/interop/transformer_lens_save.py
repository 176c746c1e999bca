"""Our models as HookedTransformer checkpoints: the config, keys, shapes and buffers of 3.x."""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.attention.positions import rotations
from interp.config import TransformerConfig
from interp.interop.transformer_lens_config import (
    ACTIVATION_OF,
    NORMALIZATION_OF,
    POSITIONAL_OF,
)
from interp.model import Transformer
from interp.results import write_atomic
from interp.weights import check_own

ROTARY_ROWS = 2048
"""HookedTransformer makes its tables of rotations no longer than this, and extends them."""


def save_transformer_lens(
    model: Transformer, path: str | Path, *, full_masks: bool = False
) -> Path:
    """Write a checkpoint that HookedTransformer 3.x loads strictly, and its config beside it.

    The config is a JSON file of the same name: `HookedTransformerConfig.from_dict` takes it.
    Biases that the model lacks are written as zeros; dropout is not written.

    Args:
        model: The model.
        path: Where the state dict goes, by custom a `.pt`.
        full_masks: Write causal masks of n_ctx × n_ctx, as versions before 3.9 have them.

    Returns:
        The path.

    Raises:
        ValueError: The model does what a HookedTransformer can't; the field is named.
    """
    check_own(model)
    path = Path(path)
    config, state = legacy_config(model.config), legacy_state(model, full_masks=full_masks)
    held = io.BytesIO()
    torch.save(state, held)
    write_atomic(path.with_suffix(".json"), json.dumps(config, indent=1) + "\n")
    return write_atomic(path, held.getvalue())


def legacy_config(config: TransformerConfig) -> dict[str, Any]:
    """What `HookedTransformerConfig.from_dict` takes, for what computes the same.

    Raises:
        ValueError: A field that a HookedTransformer can't follow.
    """
    for field in dataclass_fields(config):  # whatever is not translated below must be off
        if field.name not in _TRANSLATED:
            value = getattr(config, field.name)
            if value != _default(field):
                raise _cannot(field.name, value)
    fields: dict[str, Any] = {
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_key_value_heads": None if config.kv_heads == config.n_heads else config.kv_heads,
        "d_model": config.d_model,
        "d_head": config.head_width,
        "d_vocab": config.d_vocab,
        "d_vocab_out": config.vocab_out,
        "n_ctx": config.n_ctx,
        "eps": config.norm_eps,
        "attn_scores_soft_cap": config.score_soft_cap or -1.0,
        "output_logits_soft_cap": config.logit_soft_cap or -1.0,
        "attn_only": config.d_mlp is None,
        "d_mlp": config.d_mlp,
        "gated_mlp": config.gated_mlp,
        "parallel_attn_mlp": config.parallel,
        "act_fn": _activation(config),
    }
    fields |= _norms(config) | _kinds(config) | _scale(config)
    return fields | _positions(config)


_TRANSLATED = {
    *("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_mlp", "d_vocab", "d_vocab_out"),
    *("n_ctx", "norm_eps", "score_soft_cap", "logit_soft_cap", "gated_mlp", "parallel"),
    *("activation", "normalization", "final_normalization", "post_normalization"),
    *("mlp_normalization",),
    *("qk_normalization", "attention", "attention_options", "attention_scale", "positional"),
    *("rotary_dim", "rotary_base", "rotary_interleaved", "rotary_scaling", "alibi_slopes"),
    # Of weights, which are written in full, and of training:
    *("bias", "tied_embeddings", "dropout", "bos_token", "init_seed", "init_scale"),
}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _activation(config: TransformerConfig) -> str:
    """Their name; "solu_ln" has a norm whose kind follows from that of the blocks."""
    if config.mlp_normalization == "none":
        return _named("activation", config.activation, ACTIVATION_OF)
    has_gain = config.normalization == "layer_norm"
    if config.activation == "solu" and config.mlp_normalization == (
        "layer_norm" if has_gain else "layer_norm_pre"
    ):
        return "solu_ln"
    raise _cannot("mlp_normalization", config.mlp_normalization)


def _named(field: str, ours: str, theirs: Mapping[Any, str]) -> Any:
    names = [name for name, value in theirs.items() if value == ours]
    if not names:
        raise _cannot(field, ours)
    return names[0]


def _cannot(field: str, value: Any) -> ValueError:
    return ValueError(f"{field}={value!r}: a HookedTransformer cannot do this; it is not written")


def _norms(config: TransformerConfig) -> dict[str, Any]:
    kind, final = config.normalization, config.normalization_at_end
    final_rms = kind.startswith("layer") and final == kind.replace("layer", "rms")
    if final != kind and not final_rms:
        raise _cannot("final_normalization", final)
    if config.post_normalization not in ("none", "rms_norm"):
        raise _cannot("post_normalization", config.post_normalization)
    if config.post_normalization == "rms_norm" and not kind.startswith("rms"):
        raise _cannot("post_normalization", f"rms_norm with normalization={kind}")
    if config.qk_normalization not in ("none", "rms_norm"):
        raise _cannot("qk_normalization", config.qk_normalization)
    return {
        "normalization_type": _named("normalization", kind, NORMALIZATION_OF),
        "final_rms": final_rms,
        "use_normalization_before_and_after": config.post_normalization != "none",
        "use_qk_norm": config.qk_normalization != "none",
    }


def _kinds(config: TransformerConfig) -> dict[str, Any]:
    kinds, windows = [], set()
    for layer in range(config.n_layers):
        kind, options = config.attention_of(layer)
        kinds.append(kind)
        windows |= {options["window"]} if kind == "window" else set()
    if set(kinds) == {"full"}:
        return {"attention_dir": "bidirectional"}
    if set(kinds) - {"causal", "window"} or len(windows) > 1:
        raise _cannot("attention", config.attention)
    if not windows:
        return {"attention_dir": "causal"}
    return {
        "attention_dir": "causal",
        "use_local_attn": True,
        "window_size": windows.pop(),
        "attn_types": ["local" if kind == "window" else "global" for kind in kinds],
    }


def _scale(config: TransformerConfig) -> dict[str, Any]:
    scales = [config.scale_of(layer) for layer in range(config.n_layers)]
    first = scales[0] if scales else config.head_width**-0.5
    fields = {"use_attn_scale": True, "attn_scale": 1 / first}
    if all(math.isclose(x, first) for x in scales):
        return fields
    if all(math.isclose(x, first / (layer + 1)) for layer, x in enumerate(scales)):
        return fields | {"scale_attn_by_inverse_layer_idx": True}
    raise _cannot("attention_scale", config.attention_scale)


def _positions(config: TransformerConfig) -> dict[str, Any]:
    constant = config.positional in ("sinusoidal", "none")  # written as a table that was learned
    kind = "learned" if constant else config.positional
    fields: dict[str, Any] = {
        "positional_embedding_type": _named("positional", kind, POSITIONAL_OF)
    }
    if kind == "alibi":
        _check_alibi(config)
    if kind != "rotary":
        return fields
    fields |= {
        "rotary_dim": config.rotary_dim or config.head_width,
        "rotary_base": config.rotary_base,
        "rotary_adjacent_pairs": config.rotary_interleaved,
    }
    scaling = config.rotary_scaling
    if scaling is None:
        return fields
    if scaling["kind"] == "linear":
        if any(config.attention_of(layer)[0] == "window" for layer in range(config.n_layers)):
            raise _cannot("rotary_scaling", scaling)
        return fields | {"rotary_scaling_factor": scaling["factor"]}
    return fields | {
        "use_NTK_by_parts_rope": True,
        "NTK_by_parts_factor": scaling["factor"],
        "NTK_by_parts_low_freq_factor": scaling["low_freq_factor"],
        "NTK_by_parts_high_freq_factor": scaling["high_freq_factor"],
        "NTK_original_ctx_len": scaling["original_n_ctx"],
    }


def _check_alibi(config: TransformerConfig) -> None:
    from interp.attention.positions import alibi_slopes

    n = config.n_heads
    ours = config.alibi_slopes or alibi_slopes(n)
    theirs = [2.0 ** (-8 * (h + 1) / n) for h in range(n)]
    if not all(math.isclose(a, b) for a, b in zip(ours, theirs, strict=True)):
        raise _cannot("alibi_slopes", tuple(ours))
    if any(config.attention_of(layer)[0] == "full" for layer in range(config.n_layers)):
        raise _cannot("positional", "alibi with full attention")


def legacy_state(model: Transformer, *, full_masks: bool = False) -> dict[str, Tensor]:
    """The state dict of a HookedTransformer that computes the same.

    Raises:
        ValueError: A gated MLP has biases inside its product, which a HookedTransformer has not.
    """
    config = model.config
    state = {"embed.W_E": model.W_E, "unembed.W_U": model.W_U, "unembed.b_U": model.b_U}
    if config.positional in ("learned", "shortformer"):
        state["pos_embed.W_pos"] = model.W_pos
    elif config.positional == "sinusoidal" and model.position_table is not None:
        state["pos_embed.W_pos"] = model.position_table.to(model.W_E.dtype)
    elif config.positional in ("none", "alibi"):  # under ALiBi the table is there, and unused
        state["pos_embed.W_pos"] = model.W_E.new_zeros(config.n_ctx, config.d_model)
    state |= _norm_state(model.ln_final, "ln_final")
    for layer, block in enumerate(model.blocks):
        name = f"blocks.{layer}"
        for part in ("ln1", "ln2", "ln1_post", "ln2_post"):
            state |= _norm_state(getattr(block, part), f"{name}.{part}")
        state |= _attention_state(block.attn, f"{name}.attn")
        state |= _constants(config, f"{name}.attn", full_masks=full_masks)
        if block.mlp is not None:
            state |= _mlp_state(block.mlp, f"{name}.mlp")
    return {name: x.detach().clone().contiguous() for name, x in state.items()}


def _norm_state(norm: Any, name: str) -> dict[str, Tensor]:
    if norm is None or norm.weight is None:
        return {}
    state = {f"{name}.w": norm.weight}
    if norm.kind == "layer_norm":
        shift = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
        state[f"{name}.b"] = shift
    return state


def _attention_state(attn: Any, name: str) -> dict[str, Tensor]:
    stem = f"{name}." if attn.kv_heads == attn.n_heads else f"{name}._"
    state = {f"{name}.W_Q": attn.W_Q, f"{name}.b_Q": attn.b_Q}
    state |= {f"{stem}{part}": getattr(attn, part) for part in ("W_K", "W_V", "b_K", "b_V")}
    state |= {f"{name}.W_O": attn.W_O, f"{name}.b_O": attn.b_O}
    return (
        state
        | _norm_state(attn.q_norm, f"{name}.q_norm")
        | _norm_state(attn.k_norm, f"{name}.k_norm")
    )


def _mlp_state(mlp: Any, name: str) -> dict[str, Tensor]:
    state = {f"{name}.{part}": getattr(mlp, part) for part in ("W_in", "b_in", "W_out", "b_out")}
    if mlp.gate is None:
        return state | _norm_state(mlp.ln, f"{name}.ln")
    for part in ("b_in", "b_gate"):
        if bool(getattr(mlp, part).any()):
            raise ValueError(
                f"{name}.{part}: a HookedTransformer has no bias inside the product of a gated "
                "MLP; it is not written"
            )
    return state | {f"{name}.W_gate": mlp.W_gate}


def _constants(config: TransformerConfig, name: str, *, full_masks: bool) -> dict[str, Tensor]:
    side = config.n_ctx if full_masks else 0
    mask = torch.ones(side, side, dtype=torch.bool).tril()
    state = {f"{name}.mask": mask, f"{name}.IGNORE": torch.tensor(-math.inf)}
    if config.positional != "rotary":
        return state
    turned = config.rotary_dim or config.head_width
    rows = min(config.n_ctx, ROTARY_ROWS)
    cos, sin = rotations(rows, turned, config.rotary_base, config.rotary_scaling)
    both = (sin, cos)
    if config.rotary_interleaved:
        sin, cos = (x.repeat_interleave(2, -1) for x in both)
    else:
        sin, cos = (torch.cat([x, x], -1) for x in both)
    return state | {f"{name}.rotary_sin": sin, f"{name}.rotary_cos": cos}
