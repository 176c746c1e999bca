"""llama2.c's `.bin` files (Karpathy 2023), versions 0 and 1, and its tokenizer's."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.assembly import assemble
from interp.interop.tensors import Reader, Tensors
from interp.model import Transformer

MAGIC = 0x616B3432
BOS = 1


@dataclass(frozen=True)
class Header:
    """The first bytes of a file: sizes, whether logits share the embedding, where weights start."""

    dim: int
    hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab: int
    n_ctx: int
    shared: bool
    version: int
    start: int


def load_llama2c(
    path: str | Path,
    *,
    tokenizer: str | Path | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """A Llama-2 model as llama2.c runs it: rotations by neighbouring pairs, RMSNorm, SwiGLU.

    Args:
        path: The `.bin` file, mapped into memory.
        tokenizer: Its tokenizer's `.bin`, so that the model takes text.
        device: Where the model is made.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no such file, quantised (version 2), or not whole.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted a llama2.c .bin file, there is none")
    header = _header(path)
    config = _config(header)
    recipes = _recipes(config, _tensors(path, header))
    model = assemble(config, recipes, where=str(path), device=device)
    if tokenizer is not None:
        from interp.interop.llama2c_tokenizer import Llama2cTokenizer

        model.tokenizer = Llama2cTokenizer.read(tokenizer, header.vocab)
    return model


def _header(path: Path) -> Header:
    raw = path.read_bytes()[:256] if path.stat().st_size < 256 else _first(path, 256)
    if len(raw) < 28:
        raise ValueError(f"{path}: {len(raw)} bytes are no llama2.c file")
    magic, version = struct.unpack_from("<Ii", raw)
    if magic == MAGIC and version != 1:
        raise ValueError(
            f"{path}: version {version} (2 is quantised) is not read; export as 0 or 1"
        )
    if magic == MAGIC:
        sizes, shared, start = struct.unpack_from("<7i", raw, 8), bool(raw[36]), 256
    else:
        sizes = struct.unpack_from("<7i", raw)
        version, shared, start = 0, sizes[5] > 0, 28
        sizes = (*sizes[:5], abs(sizes[5]), sizes[6])
    if min(sizes) < 1 or sizes[0] % sizes[3] or max(sizes) > 1 << 24:
        raise ValueError(f"{path}: not a llama2.c file (its header says {sizes})")
    return Header(*sizes, shared=shared, version=version, start=start)


def _first(path: Path, n: int) -> bytes:
    with path.open("rb") as file:
        return file.read(n)


def _config(header: Header) -> TransformerConfig:
    return TransformerConfig(
        n_layers=header.n_layers,
        n_heads=header.n_heads,
        n_kv_heads=header.n_kv_heads,
        d_model=header.dim,
        d_vocab=header.vocab,
        n_ctx=header.n_ctx,
        d_mlp=header.hidden,
        activation="silu",
        gated_mlp=True,
        positional="rotary",
        rotary_interleaved=True,
        normalization="rms_norm",
        bias=False,
        tied_embeddings=header.shared,
        bos_token=BOS if header.vocab > BOS else None,
    )


def _layout(header: Header) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the order of the file; the first axis counts layers."""
    h, n = header, header.n_layers
    width = h.dim // h.n_heads
    matrices = {
        "wq": (n, h.dim, h.dim),
        "wk": (n, h.n_kv_heads * width, h.dim),
        "wv": (n, h.n_kv_heads * width, h.dim),
        "wo": (n, h.dim, h.dim),
    }
    mlp = {"w1": (n, h.hidden, h.dim), "w2": (n, h.dim, h.hidden), "w3": (n, h.hidden, h.dim)}
    tokens, att, ffn = ("tok", (h.vocab, h.dim)), ("att_norm", (n, h.dim)), ("ffn_norm", (n, h.dim))
    if h.version == 0:
        yield from (tokens, att, *matrices.items(), ffn, *mlp.items(), ("norm", (h.dim,)))
        yield from (("cos", (h.n_ctx, width // 2)), ("sin", (h.n_ctx, width // 2)))
    else:
        yield from (att, ffn, ("norm", (h.dim,)), tokens, *matrices.items(), *mlp.items())
    if not h.shared:
        yield "out", (h.vocab, h.dim)


def _tensors(path: Path, header: Header) -> Tensors:
    layout = list(_layout(header))
    wanted = header.start + 4 * sum(prod(shape) for _, shape in layout)
    if path.stat().st_size != wanted:
        raise ValueError(
            f"{path}: {path.stat().st_size} bytes, but its header asks for {wanted}; it is not "
            "whole, or not a llama2.c file"
        )
    mapped = np.memmap(path, dtype="<f4", mode="c", offset=header.start)
    found: dict[str, Tensor | Reader] = {}
    at = 0
    for name, shape in layout:
        size = prod(shape)
        found[name] = torch.from_numpy(mapped[at : at + size]).view(shape)
        at += size
    return Tensors(found, str(path))


def _recipes(config: TransformerConfig, tensors: Tensors) -> dict[str, Any]:
    take = tensors.take
    recipes: dict[str, Any] = {
        "embed.weight": lambda: take("tok"),
        "ln_final.weight": lambda: take("norm"),
        "unembed.weight": lambda: take("out"),
    }
    for n in range(config.n_layers):
        block = f"blocks.{n}"
        recipes |= {
            f"{block}.ln1.weight": lambda n=n: take("att_norm")[n],
            f"{block}.ln2.weight": lambda n=n: take("ffn_norm")[n],
            f"{block}.attn.qkv.weight": lambda n=n: torch.cat(
                [take(name)[n] for name in ("wq", "wk", "wv")]
            ),
            f"{block}.attn.o.weight": lambda n=n: take("wo")[n],
            f"{block}.mlp.gate.weight": lambda n=n: take("w1")[n],
            f"{block}.mlp.down.weight": lambda n=n: take("w2")[n],
            f"{block}.mlp.up.weight": lambda n=n: take("w3")[n],
        }
    return recipes
