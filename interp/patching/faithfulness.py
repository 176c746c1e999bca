"""How much of what a model does, a circuit of its edges does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.hooks import Hooks
from interp.metrics import Metric, weighted_mean
from interp.patching.attributed_edges import EdgeScores
from interp.patching.circuits import circuit_values
from interp.patching.edges import graph_of
from interp.patching.outcomes import differ
from interp.patching.pairs import ends_of
from interp.results import Result
from interp.sweeps import Progress, metric_name


@dataclass(frozen=True)
class Faithfulness(Result):
    """Circuits of the k best edges, all others carrying the corrupted run.

    Attributes:
        faithfulness: (m(circuit) − m(nothing)) / (m(model) − m(nothing)): 1 is all of it.
        completeness: The same of everything but the circuit: 0 if it misses nothing.
        value: The metric of the circuit.
        complement: The metric of everything but the circuit.
        model: The metric of the whole model.
        nothing: The metric with every edge corrupted.
        per_example: The circuit's metric for each example.
        weights: Scored targets of each example.
        n_edges: Edges of each circuit.
        metric: What was measured.
    """

    axes: ClassVar = {
        "faithfulness": ("edges",),
        "completeness": ("edges",),
        "value": ("edges",),
        "complement": ("edges",),
        "model": (),
        "nothing": (),
        "per_example": ("edges", "example"),
        "weights": ("example",),
    }
    coordinates: ClassVar = {"edges": "n_edges"}

    faithfulness: Float[Tensor, " edges"]
    completeness: Float[Tensor, " edges"]
    value: Float[Tensor, " edges"]
    complement: Float[Tensor, " edges"]
    model: Float[Tensor, ""]
    nothing: Float[Tensor, ""]
    per_example: Float[Tensor, "edges example"]
    weights: Int[Tensor, " example"]
    n_edges: tuple[int, ...]
    metric: str


def faithfulness_curve(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    scores: EdgeScores,
    sizes: Sequence[int] | None = None,
    metric: str | Metric = "logit_difference",
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
    memory: int | None = None,
    progress: Progress | None = None,
) -> Faithfulness:
    """Run the circuits of the k best edges by `scores`, and what is left of the model without.

    Args:
        model: Ours.
        clean: Tokens or a Batch: its targets are asked.
        corrupted: Tokens or a Batch of the same shape and padding: what other edges carry.
        scores: From `edge_attribution` or `edge_patching`.
        sizes: How many edges; None: 0, 1, 2, 4, … and all.
        metric: See `activation_patching`.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.
        memory: Bytes that the activations of one batch of runs may take.
        progress: Called with (done, total); may raise to cancel.

    Raises:
        TypeError: There is no model to run, or the scores are no `EdgeScores`.
        ValueError: The corrupted run scores what the clean one does; or the scores are another
            model's.
    """
    graph = graph_of(model)
    if not isinstance(scores, EdgeScores):
        raise TypeError(
            "scores are what edge_attribution or edge_patching give, an EdgeScores; got "
            f"{type(scores).__name__}"
        )
    if scores.senders != graph.senders or scores.receivers != graph.receivers:
        raise ValueError("these scores are of a model of another shape")
    edges = graph.edges()
    chosen = tuple(_doubling(int(edges.sum())) if sizes is None else sizes)
    kept = torch.stack([scores.circuit(k).to(edges.device) for k in chosen])
    asked = torch.cat([kept, edges & ~kept, torch.stack([edges, torch.zeros_like(edges)])])
    about: dict[str, Any] = {"metric": metric, "mask": mask, "hooks": hooks}
    ends = ends_of(model, clean, corrupted, direction="noising", **about)
    how: dict[str, Any] = {"hooks": hooks, "memory": memory, "progress": progress}
    values = circuit_values(model, graph, ends, asked, **how)
    return _faithfulness(values, ends.base.weights, chosen, metric_name(metric))


def _faithfulness(
    values: Float[Tensor, "circuit B"], weights: Tensor, sizes: tuple[int, ...], metric: str
) -> Faithfulness:
    """Of circuits of these sizes, what is left without each, the model and nothing."""
    means = weighted_mean(values, weights)
    circuit, rest, (whole, nothing) = means.split([len(sizes), len(sizes), 2])
    if not differ(whole, nothing):
        raise ValueError(
            f"{metric} is {float(whole):.6g} with all edges clean and with all corrupted: there "
            "is nothing that a circuit could be faithful to"
        )
    return Faithfulness(
        faithfulness=(circuit - nothing) / (whole - nothing),
        completeness=(rest - nothing) / (whole - nothing),
        value=circuit,
        complement=rest,
        model=whole,
        nothing=nothing,
        per_example=values[: len(sizes)],
        weights=weights,
        n_edges=sizes,
        metric=metric,
    )


def _doubling(n: int) -> list[int]:
    sizes, k = [0], 1
    while k < n:
        sizes.append(k)
        k *= 2
    return [*sizes, n]
