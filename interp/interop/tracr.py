"""Programs compiled by tracr (Lindner et al. 2023) as Transformers that see in both directions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from interp.config import TransformerConfig
from interp.interop.assembly import assemble
from interp.interop.tensors import Reader, Tensors
from interp.model import Transformer

NEEDED = [
    "num_layers",
    "num_heads",
    "key_size",
    "mlp_hidden",
    "layer_norm",
    "causal",
    "activation",
    "input_encoding",
]
"""What the config of a program must say."""


def is_tracr(path: Path) -> bool:
    """Whether a file is an `.npz`, or a folder holds `params.npz`: the only such format."""
    return path.is_file() and path.suffix == ".npz" or (path / "params.npz").is_file()


def load_tracr(
    params: str | Path | Mapping[str, Any], config: Mapping[str, Any] | str | Path
) -> Transformer:
    """A compiled program; its logits are the residual stream itself, one for each label.

    Args:
        params: Arrays by "module/name" (`model.params`, flattened), or an `.npz` with them.
        config: `model.model_config`'s fields, "d_model" and "input_encoding"; or JSON.

    Raises:
        FileNotFoundError: A file is not there.
        ValueError: The program needs what a Transformer of ours lacks, or tensors do not fit.
    """
    read = config if isinstance(config, Mapping) else _read_config(Path(config))
    where = "params" if isinstance(params, Mapping) else str(params)
    arrays = params if isinstance(params, Mapping) else _read_arrays(Path(params))
    if lacking := [name for name in NEEDED if name not in read]:
        raise ValueError(f"{where}: the program's config lacks {', '.join(lacking)}")
    readers: dict[str, Any] = {
        name: torch.from_numpy(np.array(array)) for name, array in arrays.items()
    }
    tensors = Tensors(readers, where).without_prefix("transformer/")
    ours = _config(read, tensors)
    model = assemble(ours, _recipes(ours, tensors), where=where)
    tensors.check_all_taken()
    return model


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: wanted the JSON of a tracr program's config (model.model_config's fields and "
            "input_encoding), there is none"
        )
    try:
        read = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    return read if isinstance(read, Mapping) else {}


def _read_arrays(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted an .npz of a program's params, there is none")
    try:
        return dict(np.load(path))
    except (ValueError, BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: not a whole .npz of plain arrays ({error})") from error


def _config(config: Mapping[str, Any], tensors: Tensors) -> TransformerConfig:
    if config["layer_norm"]:
        raise ValueError("config: layer_norm=True is not something that tracr compiles to")
    d_vocab, d_model = tensors.take("token_embed/embeddings").shape
    return TransformerConfig(
        n_layers=config["num_layers"],
        n_heads=config["num_heads"],
        d_head=config["key_size"],
        d_model=d_model,
        d_mlp=config["mlp_hidden"],
        d_vocab=d_vocab,
        d_vocab_out=d_model,
        n_ctx=tensors.take("pos_embed/embeddings").shape[0],
        activation=config["activation"],
        normalization="none",
        attention="causal" if config["causal"] else "full",
        bias=("qkv", "o", "mlp"),
        bos_token=config["input_encoding"].get("BOS"),
    )


def _recipes(config: TransformerConfig, tensors: Tensors) -> dict[str, Reader]:
    take = tensors.take
    recipes: dict[str, Reader] = {
        "embed.weight": lambda: take("token_embed/embeddings"),
        "pos_embed.weight": lambda: take("pos_embed/embeddings"),
        "unembed.weight": lambda: torch.eye(config.d_model),
    }
    for n in range(config.n_layers):
        attn, mlp = f"layer_{n}/attn", f"layer_{n}/mlp"
        qkv = [f"{attn}/{part}" for part in ("query", "key", "value")]
        block = f"blocks.{n}"
        recipes |= {
            f"{block}.attn.qkv.weight": lambda qkv=qkv: torch.cat(
                [take(f"{part}/w").T for part in qkv]
            ),
            f"{block}.attn.qkv.bias": lambda qkv=qkv: torch.cat([take(f"{p}/b") for p in qkv]),
        }
        maps = {
            "attn.o": f"{attn}/linear",
            "mlp.up": f"{mlp}/linear_1",
            "mlp.down": f"{mlp}/linear_2",
        }
        for ours, theirs in maps.items():
            recipes[f"{block}.{ours}.weight"] = lambda name=f"{theirs}/w": take(name).T
            recipes[f"{block}.{ours}.bias"] = lambda name=f"{theirs}/b": take(name)
    return recipes
