"""The names of activations: TransformerLens's, letter for letter."""

from interp.config import TransformerConfig

SPLIT_INPUTS = ("hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in")
"""Copies of the residual stream, one a head or part; a cache keeps them only when named."""


def hook_names(
    config: TransformerConfig, *, first: int = 0, last: int | None = None, ends: str = "both"
) -> list[str]:
    """Every activation that a call offers, in the order of the forward pass.

    Args:
        config: The model's.
        first: First layer that runs.
        last: One past the last layer that runs.
        ends: Which ends of the model run: "both", "embed", "unembed" or "neither".
    """
    names: list[str] = []
    has_norm = config.normalization != "none"
    if ends in ("both", "embed"):
        names.append("hook_embed")
    embeds_positions = config.positional in ("learned", "sinusoidal", "shortformer")
    if embeds_positions and (ends in ("both", "embed") or config.positional == "shortformer"):
        names.append("hook_pos_embed")
    for layer in range(first, config.n_layers if last is None else last):
        names += [f"blocks.{layer}.{name}" for name in _in_block(config)]
    if ends in ("both", "unembed"):
        names += [f"ln_final.{name}" for name in _NORM] if has_norm else []
        names += ["unembed.hook_in", "unembed.hook_out"]
    return names


_NORM = ("hook_scale", "hook_normalized")


def _in_block(config: TransformerConfig) -> list[str]:
    has_norm = config.normalization != "none"
    norm1 = [f"ln1.{name}" for name in _NORM] if has_norm else []
    attn = ["hook_q", "hook_k", "hook_v"]
    attn += ["hook_rot_q", "hook_rot_k"] if config.positional == "rotary" else []
    attn += ["hook_attn_scores", "hook_pattern", "hook_z", "hook_result"]
    shared = config.kv_heads != config.n_heads
    names = ["hook_resid_pre"] + [n for n in SPLIT_INPUTS[:4] if not (shared and "attn_in" in n)]
    names += [*norm1, *(f"attn.{name}" for name in attn), "hook_attn_out"]
    if config.d_mlp is not None:
        names += ["hook_resid_mid", "hook_mlp_in"]
        names += [f"ln2.{name}" for name in _NORM] if has_norm else []
        names += ["mlp.hook_pre", *(["mlp.hook_pre_linear"] if config.gated_mlp else [])]
        names += ["mlp.hook_post", "hook_mlp_out"]
    return [*names, "hook_resid_post"]
