"""GPT-2 (Radford et al. 2019) and GPT-Neo (Black et al. 2021)."""

from interp.config import TransformerConfig
from interp.interop.families.common import Values, activation, recipes_by_name, refuse
from interp.interop.tensors import Reader, Tensors


def gpt2(values: Values, tensors: Tensors) -> tuple[TransformerConfig, dict[str, Reader]]:
    """GPT-2; its matrices are stored transposed."""
    refuse(values, add_cross_attention=False)
    n_layers, width = values["n_layer"], values["n_embd"] // values["n_head"]
    scale = width**-0.5 if values.get("scale_attn_weights", True) else 1.0
    by_layer = tuple(scale / (layer + 1) for layer in range(n_layers))
    inverse = values.get("scale_attn_by_inverse_layer_idx", False)
    config = TransformerConfig(
        n_layers=n_layers,
        n_heads=values["n_head"],
        d_model=values["n_embd"],
        d_vocab=values["vocab_size"],
        n_ctx=values["n_positions"],
        d_mlp=values.get("n_inner") or 4 * values["n_embd"],
        activation=activation(values, "activation_function"),
        norm_eps=values["layer_norm_epsilon"],
        attention_scale=by_layer if inverse else scale,
        bias=("qkv", "o", "mlp", "norm"),
        tied_embeddings=values["tie_word_embeddings"],
    )
    return config, _recipes(tensors, n_layers)


def _recipes(tensors: Tensors, n_layers: int) -> dict[str, Reader]:
    return recipes_by_name(tensors, gpt2_names(n_layers), transposed=("qkv", "o", "up", "down"))


def gpt2_names(n_layers: int) -> dict[str, str]:
    """Our modules' names to GPT-2's, which minGPT and nanoGPT keep."""
    names = {"embed": "wte", "pos_embed": "wpe", "ln_final": "ln_f", "unembed": "lm_head"}
    for layer in range(n_layers):
        block, h = f"blocks.{layer}", f"h.{layer}"
        names |= {
            f"{block}.ln1": f"{h}.ln_1",
            f"{block}.ln2": f"{h}.ln_2",
            f"{block}.attn.qkv": f"{h}.attn.c_attn",
            f"{block}.attn.o": f"{h}.attn.c_proj",
            f"{block}.mlp.up": f"{h}.mlp.c_fc",
            f"{block}.mlp.down": f"{h}.mlp.c_proj",
        }
    return names


def gpt_neo(values: Values, tensors: Tensors) -> tuple[TransformerConfig, dict[str, Reader]]:
    """GPT-Neo: scores are not scaled, and every other layer has a window."""
    n_layers, local = values["num_layers"], [x == "local" for x in values["attention_layers"]]
    window = values["window_size"]
    config = TransformerConfig(
        n_layers=n_layers,
        n_heads=values["num_heads"],
        d_model=values["hidden_size"],
        d_vocab=values["vocab_size"],
        n_ctx=values["max_position_embeddings"],
        d_mlp=values.get("intermediate_size") or 4 * values["hidden_size"],
        activation=activation(values, "activation_function"),
        norm_eps=values["layer_norm_epsilon"],
        attention=tuple("window" if here else "causal" for here in local),
        attention_options=tuple({"window": window} if here else {} for here in local),
        attention_scale=1.0,
        bias=("o", "mlp", "norm"),
        tied_embeddings=values["tie_word_embeddings"],
    )
    ends = {"embed": "wte", "pos_embed": "wpe", "ln_final": "ln_f", "unembed": "lm_head"}
    names: dict[str, str | tuple[str, ...]] = {**ends}
    for layer in range(n_layers):
        block, h = f"blocks.{layer}", f"h.{layer}"
        attn = f"{h}.attn.attention"
        names |= {
            f"{block}.ln1": f"{h}.ln_1",
            f"{block}.ln2": f"{h}.ln_2",
            f"{block}.attn.qkv": (f"{attn}.q_proj", f"{attn}.k_proj", f"{attn}.v_proj"),
            f"{block}.attn.o": f"{attn}.out_proj",
            f"{block}.mlp.up": f"{h}.mlp.c_fc",
            f"{block}.mlp.down": f"{h}.mlp.c_proj",
        }
    return config, recipes_by_name(tensors, names)
