"""What an encoder–decoder computes, and the names of its activations."""

from dataclasses import dataclass

import torch

from interp.config import TransformerConfig
from interp.names import hook_names


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """Two stacks: the encoder reads a source, the decoder writes with its eyes on it.

    Attributes:
        encoder: Its `attention` says what source tokens see of each other, mostly "full".
        decoder: Its `attention` must show no later token; `init_seed` and `init_scale` are its.
    """

    encoder: TransformerConfig
    decoder: TransformerConfig

    def __post_init__(self) -> None:
        if self.encoder.d_model != self.decoder.d_model:
            raise ValueError(
                "encoder and decoder must be equally wide: d_model is "
                f"{self.encoder.d_model} and {self.decoder.d_model}"
            )
        for name, config in (("encoder", self.encoder), ("decoder", self.decoder)):
            if config.positional == "shortformer" or config.parallel:
                raise ValueError(f"{name}: neither positional='shortformer' nor parallel is built")
        ahead = torch.arange(self.decoder.n_ctx)
        for layer in range(self.decoder.n_layers):
            if bool(self.decoder.rule(layer)(ahead[:, None], ahead[None]).triu(1).any()):
                kind = self.decoder.attention_of(layer)[0]
                raise ValueError(f"decoder: {kind!r} attention sees later tokens; use 'causal'")


def seq2seq_names(config: Seq2SeqConfig) -> list[str]:
    """Every activation of an encoder–decoder, in the order of the forward pass."""
    encoder = [n for n in hook_names(config.encoder) if not n.startswith("unembed")]
    names = [f"encoder.{n}" for n in encoder]
    decoder = [n for n in hook_names(config.decoder) if not n.startswith("unembed")]
    for name in decoder:
        names.append(f"decoder.{name}")
        if name.endswith(".hook_attn_out"):
            block = f"decoder.{name.rpartition('.')[0]}"
            names += [f"{block}.{inner}" for inner in _across(config.decoder)]
    return [*names, "unembed.hook_in", "unembed.hook_out"]


def _across(config: TransformerConfig) -> list[str]:
    normed = ["hook_scale", "hook_normalized"]
    names = ["hook_resid_cross"]
    if config.normalization != "none":
        names += [f"ln_cross.{n}" for n in normed]
    heads = ["hook_q", "hook_k", "hook_v"]
    if config.qk_normalization != "none":
        heads += [f"{part}.{n}" for part in ("q_norm", "k_norm") for n in normed]
    heads += ["hook_attn_scores", "hook_pattern", "hook_z", "hook_result"]
    return [*names, *(f"cross_attn.{n}" for n in heads), "hook_cross_attn_out"]
