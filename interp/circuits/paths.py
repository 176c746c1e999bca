"""One edge between two heads: cut it alone, and see it in the weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.weights import readable
from interp.hooks import Hook, HookPoint, Hooks
from interp.model import Transformer

Head = tuple[int, int]


def without(heads: list[Head]) -> Hooks:
    """Hooks that zero these heads at z."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return [(f"blocks.{layer}.attn.hook_z", _zeroing(those)) for layer, those in by_layer.items()]


def _zeroing(heads: list[int]) -> Hook:
    def zero(z: Tensor, hook: HookPoint) -> None:
        z[:, :, heads] = 0.0

    return zero


def without_edges(
    model: Transformer, source: Head, targets: list[Head], through: str
) -> list[tuple[str, Hook]]:
    """Hooks that take what `source` writes off the inputs of the targets' q, k or v, no more.

    The targets are of one layer. Where key/value heads are shared, all query heads of a target's
    key/value head lose it. Where what heads write is normalised, that norm's scale is held.
    """
    (layer,) = {target[0] for target in targets}
    attn = model.blocks[layer].attn
    shared = 1 if through == "q" else attn.n_heads // attn.kv_heads
    rows = sorted({head // shared for _, head in targets})
    norm, written = model.blocks[source[0]].ln1_post, []

    def remember(z: Tensor, hook: HookPoint) -> None:
        written[:] = [z[:, :, source[1]] @ model.blocks[source[0]].attn.W_O[source[1]]]

    def normalise(scale: Tensor, hook: HookPoint) -> None:
        written[:] = [norm.of_part(written[0], scale)]

    def take_off(x: Tensor, hook: HookPoint) -> None:
        x[:, :, rows] -= written[0][:, :, None].to(x.dtype)

    after: list[tuple[str, Hook]] = [(f"blocks.{source[0]}.ln1_post.hook_scale", normalise)]
    return [
        (f"blocks.{source[0]}.attn.hook_z", remember),
        *(after if norm.kind != "none" else []),
        (f"blocks.{layer}.hook_{through}_input", take_off),
    ]


def token_match(
    model: Transformer, source: Head, target: Head, *, most: int = 512
) -> tuple[float, float]:
    """Does the target look for keys whose previous token, as the source moves it, is its own?

    The share of tokens whose own entry is the largest of its row in the composed QK circuit
    W_E W_OV W_K W_Qᵀ W_Eᵀ (rows: the token that the source moved to the key; columns: the query's
    token), and the same of the target's QK circuit without the source. Positions are left out. A
    perfect edge gives 1, chance is one over the number of tokens.

    Args:
        model: The model; read in its folded form.
        source: The earlier head.
        target: The later head.
        most: With more tokens than this, every n-th is compared.

    Source: Elhage et al. 2021, on the QK circuit of induction heads.
    """
    return token_match_of(readable(model), source, target, most=most)


def token_match_of(
    folded: Transformer, source: Head, target: Head, *, most: int = 512
) -> tuple[float, float]:
    """`token_match` of a model that is `readable` already."""
    every = max(1, folded.config.d_vocab // most)
    tokens = torch.arange(0, folded.config.d_vocab, every, device=folded.W_E.device)
    if folded.config.bos_token is not None:
        tokens = tokens[tokens != folded.config.bos_token]
    embedded = folded.W_E[tokens]
    w_v, w_o = folded.W_V[source], folded.W_O[source]
    asked = embedded @ folded.W_Q[target] @ folded.W_K[target].T
    return _own_is_largest((embedded @ w_v) @ w_o @ asked.T), _own_is_largest(embedded @ asked.T)


def _own_is_largest(scores: Float[Tensor, "token token"]) -> float:
    own = torch.arange(len(scores), device=scores.device)
    return (scores.argmax(-1) == own).float().mean().item()
