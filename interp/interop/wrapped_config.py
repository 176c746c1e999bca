"""What a wrapped model is like: its config, and one token through it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.attention import AttentionCall, attend
from interp.interop.attention_interface import Running, bypasses, observing


@dataclass(frozen=True)
class WrappedConfig:
    """What is known of a wrapped model.

    Attributes:
        n_layers: Layers whose attention is observed.
        n_heads: Query heads a layer.
        n_kv_heads: Key/value heads a layer.
        d_head: Width of a head's values.
        d_model: Width of the residual stream.
        d_vocab: Number of tokens.
        n_ctx: Longest sequence.
        rotary: Whether queries and keys are rotated before they are seen.
        bos_token: The token that starts sequences, or None.
        architecture: The model's class.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    d_vocab: int
    n_ctx: int
    rotary: bool
    bos_token: int | None
    architecture: str


def look(hf: Any) -> tuple[list[Any], AttentionCall]:
    """One token through the model: the modules that ask for attention, and one of their calls."""
    calls: list[tuple[Any, AttentionCall]] = []

    def note(call: AttentionCall, module: Any) -> Tensor:
        calls.append((module, call))
        return attend(call)

    token = torch.zeros(1, 1, dtype=torch.long, device=hf.device)
    devices = [hf.device] if hf.device.type == "cuda" else []
    run = Running(hf.config, note)
    with torch.no_grad(), torch.random.fork_rng(devices), observing(hf, run):
        hf(input_ids=token, use_cache=False)
    modules, shapes = [module for module, _ in calls], {_sizes(call) for _, call in calls}
    if not modules or len(set(map(id, modules))) != len(modules):
        raise bypasses(hf)
    if len(modules) != hf.config.num_hidden_layers or len(shapes) != 1:
        raise TypeError(
            f"{type(hf).__name__} has {hf.config.num_hidden_layers} layers, of which "
            f"{len(modules)} ask for attention, in shapes {sorted(shapes)}; wrap needs it to be "
            "the same in all"
        )
    return modules, calls[0][1]


def _sizes(call: AttentionCall) -> tuple[int, int, int]:
    return call.q.shape[1], call.k.shape[1], call.v.shape[-1]


def config_of(hf: Any, n_layers: int, call: AttentionCall) -> WrappedConfig:
    """What its config, and one of its calls, tell."""
    n_heads, n_kv_heads, d_head = _sizes(call)
    theirs, bos = hf.config, hf.config.bos_token_id
    return WrappedConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_model=theirs.hidden_size,
        d_vocab=theirs.vocab_size,
        n_ctx=theirs.max_position_embeddings,
        rotary=any(type(m).__name__.endswith("RotaryEmbedding") for m in hf.modules()),
        bos_token=bos if isinstance(bos, int) and 0 <= bos < theirs.vocab_size else None,
        architecture=type(hf).__name__,
    )
