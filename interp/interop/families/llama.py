"""Llama (Touvron et al. 2023) and its kin: Mistral, Qwen 2 and 3, Gemma 2."""

from typing import Any

from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.families.common import (
    Values,
    activation,
    kinds_by_layer,
    recipes_by_name,
    rotary,
)
from interp.interop.tensors import Reader, Tensors

Loaded = tuple[TransformerConfig, dict[str, Reader]]


def _fields(values: Values, *, act: str = "hidden_act") -> dict[str, Any]:
    d_model, n_heads = values["hidden_size"], values["num_attention_heads"]
    d_head = values.get("head_dim") or d_model // n_heads
    return {
        "n_layers": values["num_hidden_layers"],
        "n_heads": n_heads,
        "n_kv_heads": values.get("num_key_value_heads") or n_heads,
        "d_model": d_model,
        "d_head": d_head,
        "d_vocab": values["vocab_size"],
        "n_ctx": values["max_position_embeddings"],
        "d_mlp": values["intermediate_size"],
        "activation": activation(values, act),
        "gated_mlp": True,
        "normalization": "rms_norm",
        "norm_eps": values["rms_norm_eps"],
        "tied_embeddings": values["tie_word_embeddings"],
        **rotary(values, d_head),
    }


def _biases(values: Values) -> tuple[str, ...]:
    heads = ("qkv", "o") if values.get("attention_bias") else ()
    return (*heads, "mlp", "gate") if values.get("mlp_bias") else heads


def _recipes(tensors: Tensors, n_layers: int) -> dict[str, Reader]:
    names: dict[str, str | tuple[str, ...]] = {
        "embed": "embed_tokens",
        "ln_final": "norm",
        "unembed": "lm_head",
    }
    for layer in range(n_layers):
        block, theirs = f"blocks.{layer}", f"layers.{layer}"
        attn = f"{theirs}.self_attn"
        names |= {
            f"{block}.ln1": f"{theirs}.input_layernorm",
            f"{block}.ln2": f"{theirs}.post_attention_layernorm",
            f"{block}.attn.qkv": (f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj"),
            f"{block}.attn.q_norm": f"{attn}.q_norm",
            f"{block}.attn.k_norm": f"{attn}.k_norm",
            f"{block}.attn.o": f"{attn}.o_proj",
            f"{block}.mlp.gate": f"{theirs}.mlp.gate_proj",
            f"{block}.mlp.up": f"{theirs}.mlp.up_proj",
            f"{block}.mlp.down": f"{theirs}.mlp.down_proj",
        }
    return recipes_by_name(tensors, names)


def llama(values: Values, tensors: Tensors) -> Loaded:
    """Llama 1 to 3."""
    config = TransformerConfig(**_fields(values), bias=_biases(values))
    return config, _recipes(tensors, config.n_layers)


def mistral(values: Values, tensors: Tensors) -> Loaded:
    """Mistral: a window in all layers, or in none."""
    kinds = kinds_by_layer(values, values["num_hidden_layers"])
    config = TransformerConfig(**_fields(values), **kinds, bias=())
    return config, _recipes(tensors, config.n_layers)


def qwen2(values: Values, tensors: Tensors) -> Loaded:
    """Qwen 2 and 2.5: biases on queries, keys and values alone."""
    kinds = kinds_by_layer(values, values["num_hidden_layers"])
    config = TransformerConfig(**_fields(values), **kinds, bias=("qkv",))
    return config, _recipes(tensors, config.n_layers)


def qwen3(values: Values, tensors: Tensors) -> Loaded:
    """Qwen 3: queries and keys are normalised."""
    kinds = kinds_by_layer(values, values["num_hidden_layers"])
    config = TransformerConfig(
        **_fields(values), **kinds, qk_normalization="rms_norm", bias=_biases(values)
    )
    return config, _recipes(tensors, config.n_layers)


def gemma2(values: Values, tensors: Tensors) -> Loaded:
    """Gemma 2: norms on both sides with gains stored less 1, scaled embeddings, soft caps.

    The embedding's scale goes into the embedding, which is no longer tied then.
    """
    fields = _fields(values, act="hidden_activation") | {"tied_embeddings": False}
    config = TransformerConfig(
        **fields,
        **kinds_by_layer(values, values["num_hidden_layers"]),
        post_normalization="rms_norm",
        attention_scale=values["query_pre_attn_scalar"] ** -0.5,
        score_soft_cap=values["attn_logit_softcapping"],
        logit_soft_cap=values["final_logit_softcapping"],
        bias=_biases(values),
    )
    made = _recipes(tensors, config.n_layers)
    embedding, tied = made["embed.weight"], values["tie_word_embeddings"]
    made["unembed.weight"] = embedding if tied else made["unembed.weight"]
    made["embed.weight"] = lambda: _scaled(embedding(), config.d_model**0.5)
    gains = {"ln_final": "norm"}
    for layer in range(config.n_layers):
        block, theirs = f"blocks.{layer}", f"layers.{layer}"
        gains |= {
            f"{block}.ln1": f"{theirs}.input_layernorm",
            f"{block}.ln1_post": f"{theirs}.post_attention_layernorm",
            f"{block}.ln2": f"{theirs}.pre_feedforward_layernorm",
            f"{block}.ln2_post": f"{theirs}.post_feedforward_layernorm",
        }
    for ours, theirs in gains.items():
        made[f"{ours}.weight"] = lambda name=f"{theirs}.weight": 1 + tensors.take(name).float()
    return config, made


def _scaled(x: Tensor, factor: float) -> Tensor:
    """As transformers scales it: by the factor rounded to the dtype."""
    return x * x.new_tensor(factor)
