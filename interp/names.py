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
    if ends in ("both", "embed"):
        names.append("hook_embed")
    embeds_positions = config.positional in ("learned", "sinusoidal", "shortformer")
    if embeds_positions and (ends in ("both", "embed") or config.positional == "shortformer"):
        names.append("hook_pos_embed")
    for layer in range(first, config.n_layers if last is None else last):
        names += [f"blocks.{layer}.{name}" for name in _in_block(config)]
    if ends in ("both", "unembed"):
        names += _norm("ln_final", config.normalization_at_end)
        names += ["unembed.hook_in", "unembed.hook_out"]
    return names


def _norm(part: str, kind: str) -> list[str]:
    return [] if kind == "none" else [f"{part}.hook_scale", f"{part}.hook_normalized"]


def _in_attention(config: TransformerConfig) -> list[str]:
    names = ["hook_q", "hook_k", "hook_v"]
    names += [*_norm("q_norm", config.qk_normalization), *_norm("k_norm", config.qk_normalization)]
    names += ["hook_rot_q", "hook_rot_k"] if config.positional == "rotary" else []
    return [*names, "hook_attn_scores", "hook_pattern", "hook_z", "hook_result"]


def _in_block(config: TransformerConfig) -> list[str]:
    shared = config.kv_heads != config.n_heads
    names = ["hook_resid_pre"] + [n for n in SPLIT_INPUTS[:4] if not (shared and "attn_in" in n)]
    names += [*_norm("ln1", config.normalization), *(f"attn.{n}" for n in _in_attention(config))]
    names += [*_norm("ln1_post", config.post_normalization), "hook_attn_out"]
    if config.d_mlp is not None:
        names += ["hook_mlp_in"] if config.parallel else ["hook_resid_mid", "hook_mlp_in"]
        names += _norm("ln2", config.normalization)
        names += ["mlp.hook_pre", *(["mlp.hook_pre_linear"] if config.gated_mlp else [])]
        if config.mlp_normalization != "none":
            names += ["mlp.hook_mid", *_norm("mlp.ln", config.mlp_normalization)]
        names += ["mlp.hook_post", *_norm("ln2_post", config.post_normalization), "hook_mlp_out"]
    return [*names, "hook_resid_post"]
