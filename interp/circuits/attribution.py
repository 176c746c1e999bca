"""Why a head attends where it does: its score, split over what query and key are made of."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.features import Featured
from interp.attention.masks import Rule, Streaming
from interp.attention.positions import rotate
from interp.circuits.weights import check_head
from interp.model import Transformer
from interp.norms import Norm
from interp.results import Result


@dataclass(frozen=True, eq=False, repr=False)
class ScoreAttribution(Result):
    """A score as a table of query-side × key-side sources.

    Attributes:
        parts: What each pair adds to the score; they sum to it.
        sources: Embeddings, earlier heads, MLPs, and "bias" for what no source brings.
        score: The score before soft cap, position bias and mask.
        layer: The head's layer.
        head: The head.
        query: The query's position.
        key: The key's position.
    """

    axes: ClassVar = {"parts": ("query_source", "key_source")}
    coordinates: ClassVar = {"query_source": "sources", "key_source": "sources"}

    parts: Float[Tensor, "source source"]
    sources: tuple[str, ...]
    score: float
    layer: int
    head: int
    query: int
    key: int


@torch.no_grad()
def score_attribution(
    model: Transformer, tokens: Tensor, layer: int, head: int, query: int, key: int
) -> ScoreAttribution:
    """Split scale·q·k of one head and pair of positions over the sources of both sides.

    The norm's scale is held at what it was, so that q and k are sums over what embeddings, earlier
    heads and MLPs wrote, plus a bias; the parts then sum to the score (1e-4).

    Args:
        model: The model.
        tokens: One sequence [1 T].
        layer: The head's layer.
        head: A query head.
        query: Position of the query.
        key: Position of the key.

    Raises:
        TypeError: A head or position is no whole number.
        ValueError: There is no such head or position, there are several sequences, queries and
            keys are normalised, smeared or given positions after the projection's input, or the
            layer has no softmax.

    Source: Elhage et al. 2021, on the QK circuit's terms.
    """
    _check(model, tokens, layer, head, query, key)
    _, cache = model.run_with_cache(tokens, stop_at_layer=layer + 1)
    parts, labels = cache.decompose_resid(layer, heads=True, apply_ln=True)
    attn, norm = model.blocks[layer].attn, model.blocks[layer].ln1
    kv_head = head // (attn.n_heads // attn.kv_heads)
    q = _projected(parts[:, 0, query], norm, attn.W_Q[head], attn.b_Q[head])
    k = _projected(parts[:, 0, key], norm, attn.W_K[kv_head], attn.b_K[kv_head])
    if model.config.positional == "rotary":
        q, k = _rotated(model, q, _place(attn.rule, query, key)), _rotated(model, k, key)
    table = q @ k.mT * model.config.scale_of(layer)
    sources = (*labels, "bias")
    return ScoreAttribution(table, sources, table.sum().item(), layer, head, query, key)


def _projected(
    parts: Float[Tensor, "source d_model"], norm: Norm, weight: Tensor, bias: Tensor
) -> Float[Tensor, "source_and_bias d_head"]:
    weight, bias = weight.to(parts), bias.to(parts)
    gained = parts if norm.weight is None else parts * norm.weight
    rest = bias if norm.bias is None else bias + norm.bias.to(parts) @ weight
    return torch.cat([gained @ weight, rest[None]])


def _check_softmax(model: Transformer, layer: int) -> None:
    rule = model.blocks[layer].attn.rule
    if isinstance(rule, Featured):
        raise ValueError(
            f"{type(rule).__name__.lower()!r} attention has no scores before a softmax to split"
        )


def _place(rule: Rule, query: int, key: int) -> int:
    """Where a query stands as a key sees it: streams may re-index positions before their sinks."""
    if isinstance(rule, Streaming) and rule.positions == "cache" and key < rule.sinks:
        return int(rule.place(torch.tensor(query)))
    return query


def _rotated(model: Transformer, x: Float[Tensor, "source d_head"], position: int) -> Tensor:
    assert model.position_table is not None
    turn = model.position_table[:, None, [position]]
    return rotate(x[:, None, None], turn, interleaved=model.config.rotary_interleaved)[:, 0, 0]


def _check(model: Transformer, tokens: Tensor, layer: int, head: int, query: int, key: int) -> None:
    check_head(model, layer, head)
    _check_softmax(model, layer)
    if tokens.dim() != 2 or tokens.shape[0] != 1:
        raise ValueError(f"wanted one sequence [1 T], got tokens {list(tokens.shape)}")
    for name, position in (("query", query), ("key", key)):
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"{name} is a position, a whole number; got {position!r}")
        if not 0 <= position < tokens.shape[1]:
            raise ValueError(f"{name} must lie in [0, {tokens.shape[1]}), got {position}")
    config = model.config
    normalised = config.qk_normalization != "none"
    if config.positional == "shortformer" or normalised or config.smeared_keys:
        raise ValueError(
            "a score is split only where q and k are linear in the normalised stream at their own "
            "positions: not with positional='shortformer', qk_normalization or smeared_keys"
        )
