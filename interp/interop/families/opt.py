"""OPT (Zhang et al. 2022)."""

from interp.config import TransformerConfig
from interp.interop.families.common import Values, activation, recipes_by_name, refuse
from interp.interop.tensors import Reader, Tensors

OFFSET = 2
"""OPT's table of positions starts with two rows that no real token uses."""


def opt(values: Values, tensors: Tensors) -> tuple[TransformerConfig, dict[str, Reader]]:
    """OPT with norms before each part (all but the 350M model)."""
    refuse(values, do_layer_norm_before=True, _remove_final_layer_norm=False)
    refuse(values, word_embed_proj_dim=values["hidden_size"])
    affine = values.get("layer_norm_elementwise_affine", True)
    biases = ("qkv", "o", "mlp") if values.get("enable_bias", True) else ()
    config = TransformerConfig(
        n_layers=values["num_hidden_layers"],
        n_heads=values["num_attention_heads"],
        d_model=values["hidden_size"],
        d_vocab=values["vocab_size"],
        n_ctx=values["max_position_embeddings"],
        d_mlp=values["ffn_dim"],
        activation=activation(values, "activation_function"),
        normalization="layer_norm" if affine else "layer_norm_pre",
        bias=(*biases, "norm") if affine else biases,
        tied_embeddings=values["tie_word_embeddings"],
    )
    names: dict[str, str | tuple[str, ...]] = {
        "embed": "embed_tokens",
        "ln_final": "final_layer_norm",
        "unembed": "lm_head",
    }
    for layer in range(config.n_layers):
        block, theirs = f"blocks.{layer}", f"layers.{layer}"
        attn = f"{theirs}.self_attn"
        names |= {
            f"{block}.ln1": f"{theirs}.self_attn_layer_norm",
            f"{block}.ln2": f"{theirs}.final_layer_norm",
            f"{block}.attn.qkv": (f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj"),
            f"{block}.attn.o": f"{attn}.out_proj",
            f"{block}.mlp.up": f"{theirs}.fc1",
            f"{block}.mlp.down": f"{theirs}.fc2",
        }
    made = recipes_by_name(tensors, names)
    made["pos_embed.weight"] = lambda: tensors.take("embed_positions.weight")[OFFSET:]
    return config, made
