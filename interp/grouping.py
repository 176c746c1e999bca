"""Turn multi-head attention into grouped-query or multi-query attention."""

from dataclasses import replace

import torch
from torch import Tensor

from interp.model import Transformer


def group_queries(model: Transformer, n_kv_heads: int) -> Transformer:
    """A copy whose key and value heads are the means of those that they replace.

    It is a start for further training, not the same function: only heads that were equal lose
    nothing. With as many heads as before it is a plain copy.

    Args:
        model: The model; it is left alone.
        n_kv_heads: How many key/value heads the copy has; 1 is multi-query attention.

    Raises:
        ValueError: The number does not divide the heads that there are.

    Source: Ainslie et al. 2023, "GQA", §2.1, which pools the same way and then trains on for 5 % of
    the original steps.
    """
    have = model.config.kv_heads
    if n_kv_heads < 1 or have % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide the model's {have}, got {n_kv_heads}")
    grouped = Transformer.unfilled(
        replace(model.config, n_kv_heads=n_kv_heads),
        dtype=model.embed.weight.dtype,
        device=model.embed.weight.device,
    )
    weights = dict(model.state_dict())
    for name, x in weights.items():
        if ".attn.qkv." in name:
            weights[name] = _pooled(x, model, n_kv_heads)
        elif name.endswith(".attn.smear"):
            weights[name] = x.unflatten(0, (n_kv_heads, -1)).mean(1)
    grouped.load_state_dict(weights)
    grouped.tokenizer = model.tokenizer
    return grouped.train(model.training)


def _pooled(qkv: Tensor, model: Transformer, n_kv_heads: int) -> Tensor:
    """Rows of queries as they are; those of keys and of values averaged over each group."""
    config = model.config
    sizes = [config.n_heads, config.kv_heads, config.kv_heads]
    q, *shared = qkv.unflatten(0, (-1, config.head_width)).split(sizes)
    means = [x.unflatten(0, (n_kv_heads, -1)).mean(1) for x in shared]
    return torch.cat([q, *means]).flatten(0, 1)
