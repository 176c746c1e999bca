"""HookedTransformer's config and ours: what acts is translated, what we lack is refused by name."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from interp.config import Normalization, TransformerConfig

Legacy = Mapping[str, Any]
"""What `cfg.to_dict()` of a HookedTransformer gives, or the same as JSON."""


def read_legacy_config(config: Legacy | str | Path) -> dict[str, Any]:
    """A config as a dict: as it is, or out of a JSON file.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: It is neither.
        ValueError: It holds no JSON object.
    """
    if isinstance(config, Mapping):
        return dict(config)
    if not isinstance(config, str | Path):
        raise TypeError(
            f"config must be a dict (cfg.to_dict()) or a path to JSON, got {type(config).__name__}"
        )
    path = Path(config)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted a config (JSON), there is none")
    try:
        read = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(read, dict):
        raise ValueError(f"{path}: wanted a JSON object, got {type(read).__name__}")
    return read


def config_from_legacy(legacy: Legacy) -> TransformerConfig:
    """Our config, for what computes the same.

    Raises:
        ValueError: A field is unknown, missing, or asks for what our model does not do.
    """
    refuse_what_we_lack(legacy)
    for name in ("n_layers", "d_model", "n_ctx", "d_head", "d_vocab"):
        if legacy.get(name, -1) in (-1, None):
            raise ValueError(f"config: {name} is not given")
    d_model, d_head = legacy["d_model"], legacy["d_head"]
    n_heads = legacy.get("n_heads", -1)
    fields: dict[str, Any] = {
        "n_layers": legacy["n_layers"],
        "n_heads": d_model // d_head if n_heads == -1 else n_heads,
        "n_kv_heads": legacy.get("n_key_value_heads"),
        "d_model": d_model,
        "d_head": d_head,
        "d_vocab": legacy["d_vocab"],
        "d_vocab_out": _unless(-1, legacy.get("d_vocab_out", -1)),
        "n_ctx": legacy["n_ctx"],
        "norm_eps": legacy.get("eps", 1e-5),
        "score_soft_cap": _positive(legacy.get("attn_scores_soft_cap")),
        "logit_soft_cap": _positive(legacy.get("output_logits_soft_cap")),
    }
    fields |= _mlp(legacy) | _norms(legacy) | _attention(legacy)
    return TransformerConfig(**fields | _positions(legacy, fields["n_heads"]))


def _unless(unset: Any, value: Any) -> Any:
    return None if value == unset else value


def _positive(cap: float | None) -> float | None:
    return cap if cap is not None and cap > 0 else None


def _mlp(legacy: Legacy) -> dict[str, Any]:
    if legacy.get("attn_only"):
        return {}
    name, inside = legacy.get("act_fn", "relu"), "none"
    if name == "solu_ln":
        has_gain = legacy.get("normalization_type", "LN") == "LN"
        name, inside = "solu", "layer_norm" if has_gain else "layer_norm_pre"
    if name not in ACTIVATION_OF:
        known = ", ".join([*ACTIVATION_OF, "solu_ln"])
        raise ValueError(f"config: act_fn={name!r} is not supported ({known})")
    return {
        "mlp_normalization": inside,
        "d_mlp": legacy.get("d_mlp") or 4 * legacy["d_model"],
        "activation": ACTIVATION_OF[name],
        "gated_mlp": bool(legacy.get("gated_mlp")),
        "parallel": bool(legacy.get("parallel_attn_mlp")),
    }


def _norms(legacy: Legacy) -> dict[str, Any]:
    kind = legacy.get("normalization_type", "LN")
    if kind not in NORMALIZATION_OF:
        raise ValueError(f"config: normalization_type={kind!r} is not supported")
    ours = NORMALIZATION_OF[kind]
    both_sides = bool(legacy.get("use_normalization_before_and_after"))
    if both_sides and ours.startswith("layer"):
        raise ValueError(
            f"config: use_normalization_before_and_after with normalization_type={kind!r} "
            "does not run in TransformerLens either; only RMS does"
        )
    final = ours
    if legacy.get("final_rms"):
        final = cast("Normalization", ours.replace("layer", "rms"))
    return {
        "normalization": ours,
        "final_normalization": None if final == ours else final,
        "post_normalization": "rms_norm" if both_sides and ours != "none" else "none",
        "qk_normalization": "rms_norm" if legacy.get("use_qk_norm") else "none",
    }


def _attention(legacy: Legacy) -> dict[str, Any]:
    kinds, options, n_layers = "causal", {}, legacy["n_layers"]
    if legacy.get("attention_dir", "causal") == "bidirectional":
        kinds = "full"
    elif legacy.get("use_local_attn"):
        local = [kind == "local" for kind in legacy["attn_types"]]
        kinds = tuple("window" if here else "causal" for here in local)
        options = tuple({"window": legacy["window_size"]} if here else {} for here in local)
    given = legacy.get("attn_scale", -1.0)
    width = math.sqrt(legacy["d_head"]) if given in (-1.0, None) else float(given)
    scale = 1 / width if legacy.get("use_attn_scale", True) else 1.0
    if legacy.get("scale_attn_by_inverse_layer_idx"):
        scale = tuple(scale / (layer + 1) for layer in range(n_layers))
    elif math.isclose(scale, legacy["d_head"] ** -0.5):
        scale = None
    return {"attention": kinds, "attention_options": options, "attention_scale": scale}


def _positions(legacy: Legacy, n_heads: int) -> dict[str, Any]:
    kind = legacy.get("positional_embedding_type", "standard")
    if kind not in POSITIONAL_OF:
        raise ValueError(
            f"config: positional_embedding_type={kind!r} is not supported "
            f"({', '.join(POSITIONAL_OF)})"
        )
    fields: dict[str, Any] = {"positional": POSITIONAL_OF[kind]}
    if kind == "alibi":
        if legacy.get("attention_dir") == "bidirectional":
            raise ValueError("config: positional_embedding_type='alibi' needs causal attention")
        fields["alibi_slopes"] = tuple(2.0 ** (-8 * (h + 1) / n_heads) for h in range(n_heads))
    if kind == "rotary":
        fields["rotary_dim"] = legacy.get("rotary_dim") or legacy["d_head"]
        fields["rotary_base"] = float(legacy.get("rotary_base", 10_000))
        fields["rotary_interleaved"] = bool(legacy.get("rotary_adjacent_pairs"))
        fields["rotary_scaling"] = _scaling(legacy)
    return fields


def _scaling(legacy: Legacy) -> dict[str, Any] | None:
    if legacy.get("use_NTK_by_parts_rope"):
        return {
            "kind": "llama3",
            "factor": legacy.get("NTK_by_parts_factor", 8.0),
            "low_freq_factor": legacy.get("NTK_by_parts_low_freq_factor", 1.0),
            "high_freq_factor": legacy.get("NTK_by_parts_high_freq_factor", 4.0),
            "original_n_ctx": legacy.get("NTK_original_ctx_len", 8192),
        }
    factor = legacy.get("rotary_scaling_factor", 1.0)
    if factor == 1.0:
        return None
    if legacy.get("use_local_attn"):
        raise ValueError(
            f"config: rotary_scaling_factor={factor} in global layers alone is not supported"
        )
    return {"kind": "linear", "factor": factor}


def refuse_what_we_lack(legacy: Legacy) -> None:
    """Raise on fields that change the computation and that we do not have.

    Raises:
        ValueError: Each is named, with what it says.
    """
    for name, value in legacy.items():
        if name in _ACTING or name in _WITHOUT_EFFECT:
            continue
        if name not in _OFF:
            raise ValueError(f"config: {name!r} is no field of a HookedTransformer that we know")
        if value not in (None, False) and value != _OFF[name]:
            raise ValueError(f"config: {name}={value!r} is not supported here")
    architecture = legacy.get("original_architecture")
    if architecture in ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM"):
        raise ValueError(f"config: original_architecture={architecture!r} is not supported here")


NORMALIZATION_OF: dict[str | None, Normalization] = {
    "LN": "layer_norm",
    "LNPre": "layer_norm_pre",
    "RMS": "rms_norm",
    "RMSPre": "rms_norm_pre",
    None: "none",
}
ACTIVATION_OF = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "solu": "solu",
    "relu2": "squared_relu",
}
POSITIONAL_OF = {
    "standard": "learned",
    "rotary": "rotary",
    "shortformer": "shortformer",
    "alibi": "alibi",
}

_ACTING_NAMES = """
    n_layers n_heads n_key_value_heads d_model d_head d_mlp d_vocab d_vocab_out n_ctx eps
    act_fn gated_mlp attn_only parallel_attn_mlp normalization_type final_rms use_qk_norm
    use_normalization_before_and_after attention_dir use_local_attn attn_types window_size
    use_attn_scale attn_scale scale_attn_by_inverse_layer_idx attn_scores_soft_cap
    output_logits_soft_cap positional_embedding_type rotary_dim rotary_base rotary_adjacent_pairs
    rotary_scaling_factor use_NTK_by_parts_rope NTK_by_parts_factor NTK_by_parts_low_freq_factor
    NTK_by_parts_high_freq_factor NTK_original_ctx_len original_architecture
"""
_SILENT_NAMES = """
    model_name from_checkpoint checkpoint_index checkpoint_label_type checkpoint_value
    tokenizer_name init_mode initializer_range init_weights seed device n_devices n_params dtype
    use_attn_result use_attn_in use_split_qkv_input use_hook_mlp_in use_hook_tokens
    ungroup_grouped_query_attention default_prepend_bos tokenizer_prepends_bos
    tokenizer_appends_eos trust_remote_code uses_rms_norm layer_norm_folding yarn_factor
    yarn_attention_factor yarn_beta_fast yarn_beta_slow yarn_truncate
    yarn_original_max_position_embeddings yarn_global_attn_only train_seq_length norm_topk_prob
    relative_attention_max_distance relative_attention_num_buckets decoder_start_token_id
    experts_per_token quantization_method tie_word_embeddings
"""
# The second: runtime switches, descriptions, and options of what is refused where it is on.
_ACTING, _WITHOUT_EFFECT = set(_ACTING_NAMES.split()), set(_SILENT_NAMES.split())
_OFF: dict[str, Any] = {
    "post_embedding_ln": False,
    "load_in_4bit": False,
    "num_experts": None,
    "use_yarn_rope": False,
    "use_dynamic_ntk_rope": False,
    "use_logn_attn": False,
    "use_attention_sinks": False,
    "clip_qkv": None,
    "rotary_base_local": None,
}
