"""What an encoder–decoder computes, and the names of its activations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Seq2SeqConfig":
        """Back from `to_dict`, or from JSON.

        Raises:
            ValueError: It is no such config; or a stack can't be.
        """
        if not isinstance(values, Mapping) or set(values) != {"encoder", "decoder"}:
            got = list(values) if isinstance(values, Mapping) else type(values).__name__
            raise ValueError(f"wanted a dict with encoder and decoder, got {got}")
        stacks = {name: TransformerConfig.from_dict(values[name]) for name in values}
        return cls(**stacks)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"encoder": self.encoder.to_dict(), "decoder": self.decoder.to_dict()}

    def __post_init__(self) -> None:
        for name in ("encoder", "decoder"):
            if not isinstance(getattr(self, name), TransformerConfig):
                raise TypeError(
                    f"{name} must be a TransformerConfig, got {type(getattr(self, name)).__name__}"
                    "; of plain dicts, Seq2SeqConfig.from_dict(them)"
                )
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


def seq2seq_names(config: Seq2SeqConfig, *, encoded: bool = False) -> list[str]:
    """Every activation of an encoder–decoder, in the order of the forward pass.

    Args:
        config: The model's.
        encoded: A cache has what is made of the source: only what the decoder still computes.
    """
    names = _all_names(config)
    return [n for n in names if not _of_source(n)] if encoded else names


def _of_source(name: str) -> bool:
    across = (".cross_attn.hook_k", ".cross_attn.hook_v")
    return name.startswith("encoder.") or name.endswith(across) or ".cross_attn.k_norm." in name


def _all_names(config: Seq2SeqConfig) -> list[str]:
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
