"""Checkpoints of minGPT and nanoGPT (Karpathy 2020, 2022): GPT-2's blocks with plain matrices."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.assembly import assemble
from interp.interop.families.common import recipes_by_name
from interp.interop.families.gpt2 import gpt2_names
from interp.interop.tensors import Tensors, read_tensors, state_dict_in
from interp.model import Transformer

BUFFERS = ("*.attn.bias", "*.attn.masked_bias")
"""Causal masks that older versions store."""


def load_mingpt(
    source: str | Path | Mapping[str, Tensor],
    *,
    n_heads: int,
    device: torch.device | str = "cpu",
) -> Transformer:
    """A minGPT model; every size but the number of heads is read off the tensors.

    Args:
        source: A state dict, or a file with one.
        n_heads: minGPT writes no config, and matrices do not tell.
        device: Where the model is made.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The tensors are no such model's.
    """
    tensors = _opened(source)
    return _load(tensors, n_heads, activation="gelu_tanh", device=device)


def load_nanogpt(
    source: str | Path,
    *,
    activation: str = "gelu",
    device: torch.device | str = "cpu",
) -> Transformer:
    """A nanoGPT checkpoint (`ckpt.pt`), by the arguments that it keeps beside the weights.

    Args:
        source: The file.
        activation: "gelu_tanh" for checkpoints from before nanoGPT took PyTorch's own GELU
            (February 2023).
        device: Where the model is made.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no such checkpoint.
    """
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted a nanoGPT checkpoint, there is none")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a whole checkpoint of plain values ({first})") from error
    arguments = loaded.get("model_args") if isinstance(loaded, Mapping) else None
    if not isinstance(arguments, Mapping) or "n_head" not in arguments:
        raise ValueError(f"{path}: no 'model_args' with 'n_head', which nanoGPT writes")
    tensors = Tensors(state_dict_in(loaded, path), str(path))
    return _load(tensors, arguments["n_head"], activation=activation, device=device)


def _opened(source: str | Path | Mapping[str, Tensor]) -> Tensors:
    return Tensors(source, "state dict") if isinstance(source, Mapping) else read_tensors(source)


def _load(tensors: Tensors, n_heads: int, *, activation: str, device: Any) -> Transformer:
    tensors = tensors.without_prefix("_orig_mod.transformer.", "transformer.", "_orig_mod.")
    n_layers = sum(name.endswith(".ln_1.weight") for name in tensors)
    n_ctx, d_model = tensors.take("wpe.weight").shape
    d_vocab = tensors.take("wte.weight").shape[0]
    config = TransformerConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=d_model,
        d_vocab=d_vocab,
        n_ctx=n_ctx,
        d_mlp=tensors.take("h.0.mlp.c_fc.weight").shape[0] if n_layers else None,
        activation=activation,
        bias=tuple(part for part, name in _BIAS_OF.items() if name in tensors),
        tied_embeddings=_tied(tensors),
    )
    recipes = recipes_by_name(tensors, gpt2_names(n_layers))
    model = assemble(config, recipes, where=tensors.where, device=device)
    tensors.check_all_taken(BUFFERS)
    return model


_BIAS_OF = {
    "qkv": "h.0.attn.c_attn.bias",
    "o": "h.0.attn.c_proj.bias",
    "mlp": "h.0.mlp.c_fc.bias",
    "norm": "h.0.ln_1.bias",
}


def _tied(tensors: Tensors) -> bool:
    """Whether the unembedding is the embedding: nanoGPT ties them, and stores both."""
    return "lm_head.weight" not in tensors or torch.equal(
        tensors.take("lm_head.weight"), tensors.take("wte.weight")
    )
