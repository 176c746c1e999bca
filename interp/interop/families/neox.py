"""GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023), and Phi (Li et al. 2023)."""

from typing import Any

from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.families.common import Values, activation, recipes_by_name, rotary
from interp.interop.tensors import Reader, Tensors


def _shared(values: Values) -> dict[str, Any]:
    d_model, n_heads = values["hidden_size"], values["num_attention_heads"]
    return {
        "n_layers": values["num_hidden_layers"],
        "n_heads": n_heads,
        "d_model": d_model,
        "d_vocab": values["vocab_size"],
        "n_ctx": values["max_position_embeddings"],
        "d_mlp": values["intermediate_size"],
        "activation": activation(values, "hidden_act"),
        "norm_eps": values["layer_norm_eps"],
        "tied_embeddings": values["tie_word_embeddings"],
        **rotary(values, d_model // n_heads),
    }


def gpt_neox(values: Values, tensors: Tensors) -> tuple[TransformerConfig, dict[str, Reader]]:
    """GPT-NeoX: each head's query, key and value rows lie together."""
    heads = ("qkv", "o") if values.get("attention_bias", True) else ()
    config = TransformerConfig(
        **_shared(values), parallel=values["use_parallel_residual"], bias=(*heads, "mlp", "norm")
    )
    names: dict[str, str | tuple[str, ...]] = {
        "embed": "embed_in",
        "ln_final": "final_layer_norm",
        "unembed": "embed_out" if "embed_out.weight" in tensors else "lm_head",
    }
    made: dict[str, Reader] = {}
    for layer in range(config.n_layers):
        block, theirs = f"blocks.{layer}", f"layers.{layer}"
        names |= {
            f"{block}.ln1": f"{theirs}.input_layernorm",
            f"{block}.ln2": f"{theirs}.post_attention_layernorm",
            f"{block}.attn.o": f"{theirs}.attention.dense",
            f"{block}.mlp.up": f"{theirs}.mlp.dense_h_to_4h",
            f"{block}.mlp.down": f"{theirs}.mlp.dense_4h_to_h",
        }
        for kind in ("weight", "bias"):
            name = f"{theirs}.attention.query_key_value.{kind}"
            made[f"{block}.attn.qkv.{kind}"] = lambda name=name: _apart(
                tensors.take(name), config.n_heads
            )
    return config, made | recipes_by_name(tensors, names)


def _apart(rows: Tensor, n_heads: int) -> Tensor:
    """From (head, which of three, d_head) rows to all queries, all keys, all values."""
    return rows.unflatten(0, (n_heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def phi(values: Values, tensors: Tensors) -> tuple[TransformerConfig, dict[str, Reader]]:
    """Phi: attention and MLP read one norm; here it is stored once for each."""
    has_norms = bool(values.get("qk_layernorm"))
    config = TransformerConfig(
        **_shared(values),
        n_kv_heads=values.get("num_key_value_heads"),
        parallel=True,
        qk_normalization="layer_norm" if has_norms else "none",
        bias=("qkv", "o", "mlp", "norm", "unembed"),
    )
    names: dict[str, str | tuple[str, ...]] = {
        "embed": "embed_tokens",
        "ln_final": "final_layernorm",
        "unembed": "lm_head",
    }
    for layer in range(config.n_layers):
        block, theirs = f"blocks.{layer}", f"layers.{layer}"
        attn = f"{theirs}.self_attn"
        names |= {
            f"{block}.ln1": f"{theirs}.input_layernorm",
            f"{block}.ln2": f"{theirs}.input_layernorm",
            f"{block}.attn.qkv": (f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj"),
            f"{block}.attn.q_norm": f"{attn}.q_layernorm",
            f"{block}.attn.k_norm": f"{attn}.k_layernorm",
            f"{block}.attn.o": f"{attn}.dense",
            f"{block}.mlp.up": f"{theirs}.mlp.fc1",
            f"{block}.mlp.down": f"{theirs}.mlp.fc2",
        }
    return config, recipes_by_name(tensors, names)
