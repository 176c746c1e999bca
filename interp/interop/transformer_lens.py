"""HookedTransformer checkpoints of TransformerLens 1.x to 3.x, read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.assembly import assemble, columns_of_heads, rows_of_heads
from interp.interop.tensors import Reader, Tensors, read_tensors
from interp.interop.transformer_lens_config import (
    Legacy,
    config_from_legacy,
    read_legacy_config,
)
from interp.interop.whole_module import read_whole_module
from interp.model import Transformer

BUFFERS = ("*.attn.mask", "*.attn.IGNORE", "*.attn.rotary_sin", "*.attn.rotary_cos")
"""Constants that checkpoints carry; they follow from the config."""


def load_transformer_lens(
    source: str | Path | Mapping[str, Tensor],
    config: Legacy | str | Path | None = None,
    *,
    missing_biases: str = "refuse",
    whole_module: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """A model that computes what the HookedTransformer computed.

    A checkpoint is reproduced, or refused by naming the field. A gated MLP's `b_in`, which
    HookedTransformer adds after the product, moves into `b_out`, where it computes the same.

    Args:
        source: A state dict, or a file or folder with one (.pt, .pth, .safetensors).
        config: `cfg.to_dict()`, or JSON. None: the file's own name with .json, or config.json
            beside it.
        missing_biases: "zero" puts zeros where the checkpoint has no bias; "refuse" refuses.
        whole_module: The file is a pickled module: its tensors (and config) are read with an
            unpickler that runs no code.
        dtype: Of the weights. None: that of the checkpoint.
        device: Where the model is made.

    Raises:
        FileNotFoundError: A file is not there.
        ValueError: A field is not supported; or tensors do not fit the config, are not finite, or
            are left over; or a file is broken.
    """
    if missing_biases not in ("refuse", "zero"):
        raise ValueError(f"missing_biases must be 'refuse' or 'zero', got {missing_biases!r}")
    tensors, found = _opened(source, whole_module)
    ours = config_from_legacy(_config(source, config, found))
    if missing_biases == "zero":
        tensors = _with_zero_biases(tensors, ours)
    recipes = _recipes(ours, tensors)
    model = assemble(ours, recipes, where=tensors.where, dtype=dtype, device=device)
    unused = [*BUFFERS, "pos_embed.W_pos"] if ours.positional == "alibi" else BUFFERS
    tensors.check_all_taken(unused)
    return model


def _opened(
    source: str | Path | Mapping[str, Tensor], whole_module: bool
) -> tuple[Tensors, Legacy | None]:
    if isinstance(source, Mapping):
        return Tensors(source, "state dict"), None
    return read_whole_module(source) if whole_module else (read_tensors(source), None)


def _config(source: Any, config: Legacy | str | Path | None, found: Legacy | None) -> Legacy:
    if config is not None:
        return read_legacy_config(config)
    if found is not None:
        return found
    if isinstance(source, Mapping):
        raise ValueError("a state dict needs its config: pass config=cfg.to_dict(), or JSON")
    path = Path(source)
    if path.is_file() and path.with_suffix(".json").is_file():
        return read_legacy_config(path.with_suffix(".json"))
    return read_legacy_config((path if path.is_dir() else path.parent) / "config.json")


def _recipes(config: TransformerConfig, tensors: Tensors) -> dict[str, Reader]:
    d, v, out = config.d_model, config.d_vocab, config.vocab_out
    take = tensors.take
    recipes: dict[str, Reader] = {
        "embed.weight": lambda: take("embed.W_E", (v, d)),
        "unembed.weight": lambda: take("unembed.W_U", (d, out)).T,
        "unembed.bias": lambda: take("unembed.b_U", (out,)),
        "pos_embed.weight": lambda: take("pos_embed.W_pos", (config.n_ctx, d)),
        **_norm(tensors, "ln_final"),
    }
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        norms = ("ln1", "ln2", "ln1_post", "ln2_post", "attn.q_norm", "attn.k_norm", "mlp.ln")
        for norm in norms:
            recipes |= _norm(tensors, f"{block}.{norm}")
        recipes |= _attention(config, tensors, f"{block}.attn")
        if config.d_mlp is not None:
            recipes |= _mlp(config, tensors, f"{block}.mlp")
    return recipes


def _norm(tensors: Tensors, name: str) -> dict[str, Reader]:
    return {
        f"{name}.weight": lambda: tensors.take(f"{name}.w"),
        f"{name}.bias": lambda: tensors.take(f"{name}.b"),
    }


def _attention(config: TransformerConfig, tensors: Tensors, name: str) -> dict[str, Reader]:
    take, (h, k) = tensors.take, (config.n_heads, config.kv_heads)
    d, e = config.d_model, config.head_width
    # Grouped keys and values are stored with a leading underscore.
    stem = f"{name}._" if f"{name}._W_K" in tensors else f"{name}."

    def weight() -> Tensor:
        q = take(f"{name}.W_Q", (h, d, e))
        kv = [take(f"{stem}W_{part}", (k, d, e)) for part in "KV"]
        return torch.cat([rows_of_heads(part) for part in (q, *kv)])

    def bias() -> Tensor:
        kv = [take(f"{stem}b_{part}", (k, e)) for part in "KV"]
        return torch.cat([take(f"{name}.b_Q", (h, e)), *kv]).flatten()

    return {
        f"{name}.qkv.weight": weight,
        f"{name}.qkv.bias": bias,
        f"{name}.o.weight": lambda: columns_of_heads(take(f"{name}.W_O", (h, e, d))),
        f"{name}.o.bias": lambda: take(f"{name}.b_O", (d,)),
    }


def _mlp(config: TransformerConfig, tensors: Tensors, name: str) -> dict[str, Reader]:
    take, (d, m) = tensors.take, (config.d_model, config.d_mlp or 0)

    def b_out() -> Tensor:
        own = take(f"{name}.b_out", (d,))
        if not config.gated_mlp:
            return own
        moved = take(f"{name}.b_in", (m,)).float() @ take(f"{name}.W_out", (m, d)).float()
        return own + moved.to(own.dtype)

    def b_in() -> Tensor:
        own = take(f"{name}.b_in", (m,))
        return torch.zeros_like(own) if config.gated_mlp else own

    return {
        f"{name}.up.weight": lambda: take(f"{name}.W_in", (d, m)).T,
        f"{name}.up.bias": b_in,
        f"{name}.gate.weight": lambda: take(f"{name}.W_gate", (d, m)).T,
        f"{name}.down.weight": lambda: take(f"{name}.W_out", (m, d)).T,
        f"{name}.down.bias": b_out,
    }


def _with_zero_biases(tensors: Tensors, config: TransformerConfig) -> Tensors:
    """The tensors, and a zero for each bias that a HookedTransformer has and they lack."""
    d, e = config.d_model, config.head_width
    grouped = "_" if "blocks.0.attn._W_K" in tensors else ""
    shapes: dict[str, tuple[int, ...]] = {"unembed.b_U": (config.vocab_out,)}
    norms = ["ln_final"]
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        norms += [f"{block}.ln1", f"{block}.ln2"]
        shapes |= {f"{block}.attn.b_Q": (config.n_heads, e), f"{block}.attn.b_O": (d,)}
        for part in "KV":
            shapes[f"{block}.attn.{grouped}b_{part}"] = (config.kv_heads, e)
        if config.d_mlp is not None:
            shapes |= {f"{block}.mlp.b_in": (config.d_mlp,), f"{block}.mlp.b_out": (d,)}
    if config.normalization == "layer_norm":
        shapes |= {f"{name}.b": (d,) for name in norms if f"{name}.w" in tensors}
    dtype = tensors.take("embed.W_E").dtype
    zeros = {n: torch.zeros(s, dtype=dtype) for n, s in shapes.items() if n not in tensors}
    return tensors.with_more(zeros)
