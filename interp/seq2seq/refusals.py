"""What an encoder–decoder refuses before it computes anything."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.seq2seq.architecture import Seq2SeqConfig
from interp.seq2seq.cache import Seq2SeqCache


def check_cache(config: Seq2SeqConfig, kv_cache: Seq2SeqCache | None) -> None:
    """Refuse what is no KV cache of this model.

    Raises:
        TypeError: It is something else, such as a decoder-only model's.
        ValueError: It is of a model with another number of layers.
    """
    if kv_cache is None:
        return
    if not isinstance(kv_cache, Seq2SeqCache):
        got = type(kv_cache).__name__
        raise TypeError(f"kv_cache comes from this model's new_kv_cache(), got {got}")
    if kv_cache.own.n_layers != config.decoder.n_layers:
        raise ValueError(
            f"the KV cache is of a decoder of {kv_cache.own.n_layers} layers, this one has "
            f"{config.decoder.n_layers}; use its own model.new_kv_cache()"
        )


def check_source(
    source: Int[Tensor, "batch source"],
    mask: Bool[Tensor, "batch source"] | None,
    tokens: Int[Tensor, "batch pos"],
) -> None:
    """Refuse sources that there is nothing to read in, or not one for each row of tokens.

    Raises:
        ValueError: The batches differ, or a source is empty or all pads.
    """
    if source.shape[0] != tokens.shape[0]:
        raise ValueError(
            f"wanted one source for each row of tokens, got {source.shape[0]} sources and "
            f"{tokens.shape[0]} rows; repeat or cut one of them"
        )
    if source.shape[1] == 0:
        raise ValueError(
            f"wanted sources of at least one token, got {list(source.shape)}; give the encoder "
            "something to read"
        )
    if mask is None or torch.compiler.is_compiling():
        return  # looking at values would stop the graph
    empty = (~mask.any(1)).nonzero().flatten().tolist()
    if empty:
        shown = ", ".join(map(str, empty[:6])) + (" …" if len(empty) > 6 else "")
        raise ValueError(
            f"wanted a real token in each source, got rows that are all pads: {shown}; leave these "
            "rows out, or look at source_mask (True = real token)"
        )
