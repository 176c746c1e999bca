"""What a head does to tokens, by its weights: who looks at what and says what, and one back.

Readings are of the embeddings: exact in the first layer, where nothing else is in the stream, and
of later layers the direct path alone.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention.call import per_query_head
from interp.attention.features import Featured
from interp.attention.kernels import scores_of
from interp.circuits.weights import at_distance, check_head, qk, readable
from interp.hooks import SILENT
from interp.model import Transformer
from interp.results import Result
from interp.sweeps.clean import CallKeeper
from interp.weights import check_own

MOST = 1024  # tokens whose pairs are looked at


@dataclass(frozen=True, eq=False, repr=False)
class SkipTrigrams(Result):
    """Of each source token, the queries that look at it, and what it makes a head say.

    Attributes:
        query: Tokens that score this source most, best first.
        score: That score, scale included, less the query's mean over all sources: what is left of
            it in the softmax, in nats.
        output: Tokens whose logit the source raises most, best first.
        logit: By how much, less the mean over outputs, at full attention.
        sources: The source tokens.
        layer: The head's layer.
        head: The head.
    """

    axes: ClassVar = dict.fromkeys(("query", "score", "output", "logit"), ("source", "rank"))
    coordinates: ClassVar = {"source": "sources"}

    query: Int[Tensor, "source rank"]
    score: Float[Tensor, "source rank"]
    output: Int[Tensor, "source rank"]
    logit: Float[Tensor, "source rank"]
    sources: tuple[int, ...]
    layer: int
    head: int

    def strongest(self, n: int = 10) -> list[tuple[int, int, int, float, float]]:
        """The largest score · logit: source … query → output, score and logit."""
        score, logit = self.score[:, 0], self.logit[:, 0]
        product = score.clamp(min=0) * logit.clamp(min=0)
        order = product.argsort(descending=True, stable=True)[:n].tolist()
        return [
            (self.sources[i], int(self.query[i, 0]), int(self.output[i, 0]), float(score[i]),
             float(logit[i]))
            for i in order
            if float(product[i]) > 0
        ]  # fmt: skip


@torch.no_grad()
def skip_trigrams(
    model: Transformer, layer: int, head: int, *, k: int = 5, distance: int = 0
) -> SkipTrigrams:
    """Read a head's QK and OV circuits in tokens: source … query → output.

    By W_E W_QK W_Eᵀ and W_E W_OV W_U of the folded model, embeddings normalised as the layer would;
    positions, other than rotations, are left out. Of more than 1,024 tokens every n-th is looked
    at as source and query; outputs are all.

    Args:
        model: The model.
        layer: The layer.
        head: A query head.
        k: How many queries and outputs of each source.
        distance: With rotary positions, how far back the source stands.

    Raises:
        ValueError: There is no such head, or queries and keys are normalised.

    Source: Elhage et al. 2021, "Skip-trigrams".
    """
    check_head(model, layer, head)
    if model.config.qk_normalization != "none":
        raise ValueError("queries and keys are normalised here: scores are no circuit of weights")
    folded, circuit = readable(model), qk(model, layer, head, distance=distance)
    bias = folded.b_Q[layer, head]
    bias = at_distance(folded, bias[None], distance)[0] if distance else bias
    every = max(1, model.config.d_vocab // MOST)
    tokens = torch.arange(0, model.config.d_vocab, every, device=folded.W_E.device)
    stream = folded.blocks[layer].ln1(folded.W_E[tokens][None], SILENT)[0]
    asked = stream @ circuit.A + bias
    scores = (asked @ (stream @ circuit.B.mT).mT).T * model.config.scale_of(layer)
    logits = stream @ folded.W_V[layer, head] @ folded.W_O[layer, head] @ folded.W_U
    score, query = _best(scores - scores.mean(0), k)
    logit, output = _best(logits - logits.mean(1, keepdim=True), k)
    about = {"sources": tuple(tokens.tolist()), "layer": layer, "head": head}
    return SkipTrigrams(query=tokens[query], score=score, output=output, logit=logit, **about)


def _best(values: Float[Tensor, "source token"], k: int) -> tuple[Tensor, Tensor]:
    found = values.topk(min(k, values.shape[1]), dim=1)
    return found.values, found.indices


@torch.no_grad()
def previous_token_match(
    model: Transformer, *, length: int = 64, most: int = 64
) -> Float[Tensor, "layer head"]:
    """The share of positions at which a head's weights look at the token before, whatever it is.

    The score of a query at a key is averaged over all pairs of tokens that could stand there; the
    largest must be one back. 1: always; the share of an indifferent head is small, and depends on
    the positions' own size.

    Args:
        model: The model.
        length: Positions that are tried, no more than the model has.
        most: With more tokens than this, every n-th counts.

    Raises:
        ValueError: A layer has no scores before a softmax.

    Source: the memory-recall probe of Bietti et al. 2023, "Birth of a Transformer", which reads
    position embeddings alone; the mean over tokens here also holds for rotations and biases.
    """
    check_own(model)
    n, every = min(length, model.config.n_ctx), max(1, model.config.d_vocab // most)
    tokens = torch.arange(0, model.config.d_vocab, every, device=model.W_E.device)
    alike = tokens[:, None].expand(-1, n)  # at each position the same token
    stream = model(alike, stop_at_layer=0)
    return torch.stack([_looks_back(model, stream, n) for n in range(model.config.n_layers)])


def _looks_back(
    model: Transformer, stream: Float[Tensor, "token pos d_model"], layer: int
) -> Float[Tensor, " head"]:
    keeper = CallKeeper()
    model(stream, start_at_layer=layer, stop_at_layer=layer + 1, kernel=keeper)
    call = keeper.calls[layer]
    if isinstance(call.visible.rule, Featured):
        raise ValueError(f"layer {layer} has no scores before a softmax to read")
    k = per_query_head(call.k, call.q.shape[1])
    mean = replace(call, q=call.q.mean(0, keepdim=True), k=k.mean(0, keepdim=True))
    best = scores_of(mean)[0].argmax(-1)[:, 1:]
    before = torch.arange(best.shape[1], device=best.device)
    return (best == before).float().mean(-1)
