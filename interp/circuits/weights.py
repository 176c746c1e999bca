"""What heads do by their weights: QK and OV circuits, copying, composition.

All readings are of the folded form (gains of norms multiplied into the matrices behind them), which
computes the same; the model itself is not touched. Row vectors multiply from the left.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.positions import rotate
from interp.circuits.factored import FactoredMatrix
from interp.folding import center_unembed, fold_layer_norm
from interp.model import Transformer
from interp.sweeps.subject import whole_pair
from interp.weights import check_own

Composition = Literal["Q", "K", "V"]


def readable(model: Transformer) -> Transformer:
    """The form that weights are read in: norms folded and the unembedding centred, where they can.

    Source: Elhage et al. 2021, on why unfolded weights mislead.
    """
    check_own(model)
    if model.config.positional == "shortformer":
        return model
    folded = fold_layer_norm(model)
    return folded if folded.config.logit_soft_cap is not None else center_unembed(folded)


def ov(model: Transformer, layer: int, head: int) -> FactoredMatrix:
    """W_V W_O [d_model d_model]: what a head moves from where it attends to where it stands.

    Raises:
        ValueError: There is no such head.
    """
    check_head(model, layer, head)
    folded = readable(model)
    return FactoredMatrix(folded.W_V[layer, head], folded.W_O[layer, head])


def qk(model: Transformer, layer: int, head: int, *, distance: int = 0) -> FactoredMatrix:
    """W_Q W_Kᵀ [d_model d_model]: rows are the query's stream, columns the key's.

    Args:
        model: The model.
        layer: The layer.
        head: A query head.
        distance: With rotary positions, how far back the key stands; the circuit depends on it.

    Raises:
        ValueError: There is no such head, or a distance is asked of a model without rotations.
    """
    check_head(model, layer, head)
    folded = readable(model)
    w_q, w_k = folded.W_Q[layer, head], folded.W_K[layer, head]
    if distance:
        w_q = at_distance(folded, w_q, distance)
    return FactoredMatrix(w_q, w_k.mT)


def at_distance(
    model: Transformer, queries: Float[Tensor, "row d_head"], distance: int
) -> Float[Tensor, "row d_head"]:
    """Queries, or rows of W_Q, as they meet keys that stand so far back and are not turned.

    Raises:
        ValueError: There are no rotations, or no such distance.
    """
    table = model.position_table
    if model.config.positional != "rotary" or table is None:
        raise ValueError(
            f"distance={distance} needs positional='rotary', got {model.config.positional!r}: "
            "this circuit is the same at every distance"
        )
    if not 0 <= distance < model.config.n_ctx:
        raise ValueError(f"distance must lie in [0, {model.config.n_ctx}), got {distance}")
    turn = table[:, None, [distance]]
    turned = rotate(queries[:, None, None], turn, interleaved=model.config.rotary_interleaved)
    return turned[:, 0, 0]


def check_head(model: Transformer, layer: int, head: int) -> None:
    """Refuse a head that the model does not have.

    Raises:
        TypeError: There is no model whose weights can be read, or a number is not whole.
        ValueError: There is no such head.
    """
    check_own(model)
    whole_pair((layer, head), "a head")
    layers, heads = model.config.n_layers, model.config.n_heads
    if not (0 <= layer < layers and 0 <= head < heads):
        raise ValueError(
            f"there is no head L{layer}H{head}: layers are 0 … {layers - 1}, heads 0 … {heads - 1}"
        )


def copying_score(model: Transformer) -> Float[Tensor, "layer head"]:
    """Σ Re λ / Σ |λ| over the eigenvalues λ of W_E W_OV W_U: 1 copies, −1 suppresses, 0 neither.

    Computed from the d_head × d_head matrix W_O W_U W_E W_V, which has the same non-zero
    eigenvalues. Positive eigenvalues do not imply that each token raises itself.

    Raises:
        ValueError: The model's logits are not over its tokens.

    Source: Elhage et al. 2021, "Copying / primitive in-context learning".
    """
    check_own(model)
    if model.config.vocab_out != model.config.d_vocab:
        raise ValueError(
            f"copying compares tokens with logits: d_vocab is {model.config.d_vocab}, "
            f"d_vocab_out {model.config.vocab_out}"
        )
    folded = readable(model)
    through = folded.W_U.double() @ folded.W_E.double()
    small = folded.W_O.double() @ through @ folded.W_V.double()
    values = torch.linalg.eigvals(small)
    return (values.real.sum(-1) / values.abs().sum(-1)).float()


def composition_scores(
    model: Transformer, kind: Composition, *, subtract_baseline: bool = False
) -> Float[Tensor, "layer head later_layer later_head"]:
    """How much a later head reads of what an earlier one writes, through Q, K or V.

    ‖W_OV¹ W²‖ / (‖W_OV¹‖ ‖W²‖), Frobenius norms, W² being W_QK, its transpose, or W_OV of the later
    head; NaN where the second head is not in a later layer. Random matrices give 1/√d_model. A weak
    score is no proof: irrelevant directions dilute it, and working pairs below random exist.

    Args:
        model: The model; folded first, positions ignored.
        kind: Through which input the later head reads.
        subtract_baseline: Take off the 1/√d_model of random matrices.

    Raises:
        ValueError: The kind is none of Q, K, V.

    Source: Elhage et al. 2021, "Composition scores".
    """
    _check_kind(kind)
    folded = readable(model)
    return composition_of(*_first_and_second(folded, kind)) - (
        folded.config.d_model**-0.5 if subtract_baseline else 0.0
    )


def _check_kind(kind: object) -> None:
    if kind not in get_args(Composition):
        raise ValueError(f"composition is through 'Q', 'K' or 'V', got {kind!r}")


def _first_and_second(
    model: Transformer, kind: Composition
) -> tuple[FactoredMatrix, FactoredMatrix]:
    first = FactoredMatrix(model.W_V, model.W_O)
    if kind == "V":
        return first, first
    w_q, w_k = model.W_Q, model.W_K
    return first, FactoredMatrix(*((w_q, w_k.mT) if kind == "Q" else (w_k, w_q.mT)))


def composition_of(
    first: FactoredMatrix, second: FactoredMatrix
) -> Float[Tensor, "layer head later_layer later_head"]:
    """The scores of stacked circuits [L H D D], by their small inner products only."""
    scores = _strengths(*_ends(first, second)).float()
    n_layers, n_heads = scores.shape[:2]
    layer = torch.arange(n_layers, device=scores.device)
    later = layer[None, :] > layer[:, None]
    hidden = ~later[:, None, :, None].expand(-1, n_heads, -1, n_heads)
    return scores.masked_fill(hidden, torch.nan)


def _ends(
    first: FactoredMatrix, second: FactoredMatrix
) -> tuple[Float[Tensor, "layer head r d"], Float[Tensor, "layer head d r"]]:
    """What one writes and the other reads, of few rows and columns: ‖A X B‖ = ‖R_A X R_Bᵀ‖."""
    left = torch.linalg.qr(first.A.double()).R
    right = torch.linalg.qr(second.B.double().mT).R
    return left @ first.B.double(), second.A.double() @ right.mT


def _strengths(
    writes: Float[Tensor, "layer head r d"], reads: Float[Tensor, "layer head d r"]
) -> Float[Tensor, "layer head later_layer later_head"]:
    product = torch.einsum("lhrd,mgds->lhmgrs", writes, reads)
    norm = product.square().sum((-2, -1)).sqrt()
    each = [torch.linalg.matrix_norm(end) for end in (writes, reads)]
    return norm / each[0][:, :, None, None] / each[1][None, None]


def composition_percentiles(
    model: Transformer,
    kind: Composition,
    *,
    draws: int = 64,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "layer head later_layer later_head"]:
    """Where a composition score lies among those with the first head's output turned at random.

    From 0 to 1: the share of random rotations of the residual stream between the two heads that
    give a lower score. The range around 1/√d_model depends on the heads' ranks; this does not.

    Args:
        model: The model.
        kind: "Q", "K" or "V".
        draws: How many rotations.
        generator: Where they come from; a fixed seed of its own if None.

    Raises:
        ValueError: The kind is none of Q, K, V, or there is no draw.
    """
    _check_kind(kind)
    if draws < 1:
        raise ValueError(f"a place among random rotations takes 1 draw or more, got {draws}")
    first, second = _first_and_second(readable(model), kind)
    scores = composition_of(first, second)
    found = _percentiles(first, second, draws, generator or torch.Generator().manual_seed(0))
    return found.masked_fill(scores.isnan(), torch.nan)


def _percentiles(
    first: FactoredMatrix, second: FactoredMatrix, draws: int, generator: torch.Generator
) -> Float[Tensor, "layer head later_layer later_head"]:
    writes, reads = _ends(first, second)
    scores, below = _strengths(writes, reads), torch.zeros((), device=reads.device)
    for _ in range(draws):
        square = torch.randn(first.shape[-1], first.shape[-1], generator=generator)
        turn = torch.linalg.qr(square).Q.to(writes)
        below = below + (_strengths(writes @ turn, reads) < scores)
    return below / draws


def composition_of_pairs(
    folded: Transformer,
    kind: Composition,
    *,
    sources: Sequence[tuple[int, int]],
    targets: Sequence[tuple[int, int]],
    generator: torch.Generator,
    draws: int = 64,
) -> tuple[Float[Tensor, "source target"], Float[Tensor, "source target"]]:
    """Scores and percentiles of a few pairs, of a model that is `readable` already."""
    pair = zip(_first_and_second(folded, kind), (sources, targets), strict=True)
    first, second = (_of_heads(all_of, heads) for all_of, heads in pair)
    scores = _strengths(*_ends(first, second))[0, :, 0].float()
    return scores, _percentiles(first, second, draws, generator)[0, :, 0]


def _of_heads(circuits: FactoredMatrix, heads: Sequence[tuple[int, int]]) -> FactoredMatrix:
    layers, places = (list(index) for index in zip(*heads, strict=True))
    return FactoredMatrix(circuits.A[layers, places][None], circuits.B[layers, places][None])
