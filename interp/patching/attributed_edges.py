"""Edge attribution: how much each edge of the model's graph matters, and circuits made of them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.hooks import Hook, Hooks
from interp.metrics import Metric, weighted_mean
from interp.patching.circuits import circuit_values
from interp.patching.edges import (
    Graph,
    by_receiver,
    graph_of,
    receiver_names,
    sender_names,
    written,
)
from interp.patching.gradients import gradients, refuse_flat
from interp.patching.pairs import Ends, ends_of, recorded
from interp.results import Result
from interp.sweeps import SITES, Progress, metric_name


@dataclass(frozen=True)
class EdgeScores(Result):
    """What each edge carries.

    Attributes:
        scores: The change of the metric when this edge alone carries the corrupted run: exact
            ("patching") or to first order ("attribution"); NaN where there is no edge.
        clean: The metric of the clean run.
        corrupted: That of the corrupted one.
        weights: Scored targets of each example.
        senders: Names of who writes.
        receivers: Names of who reads.
        method: "attribution", "attribution, k steps" or "patching".
        metric: What was measured.
    """

    axes: ClassVar = {
        "scores": ("sender", "receiver"),
        "clean": (),
        "corrupted": (),
        "weights": ("example",),
    }
    coordinates: ClassVar = {"sender": "senders", "receiver": "receivers"}

    scores: Float[Tensor, "sender receiver"]
    clean: Float[Tensor, ""]
    corrupted: Float[Tensor, ""]
    weights: Int[Tensor, " example"]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    method: str
    metric: str

    def top(self, k: int) -> list[tuple[str, str, float]]:
        """The k edges whose score is largest in size: (sender, receiver, score)."""
        rows, columns = self.circuit(k).nonzero(as_tuple=True)
        found = [
            (self.senders[i], self.receivers[j], float(self.scores[i, j]))
            for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        ]
        return sorted(found, key=lambda edge: -abs(edge[2]))

    def circuit(self, k: int) -> Bool[Tensor, "sender receiver"]:
        """True for those edges."""
        sizes = self.scores.abs().nan_to_num(-1.0).flatten()
        n = int((~self.scores.isnan()).sum())
        if not 0 <= k <= n:
            raise ValueError(f"this graph has {n} edges; a circuit of {k} can't be made of them")
        kept = torch.zeros_like(sizes, dtype=torch.bool)
        kept[sizes.argsort(descending=True, stable=True)[:k]] = True
        return kept.view_as(self.scores)


def edge_attribution(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    metric: str | Metric = "logit_difference",
    steps: int = 1,
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
    progress: Progress | None = None,
) -> EdgeScores:
    """First-order score of every edge: (what the sender writes, corrupted − clean) · gradient.

    Args:
        model: Ours.
        clean: Tokens or a Batch: its targets are asked.
        corrupted: Tokens or a Batch of the same shape and padding.
        metric: See `activation_patching`; it must be differentiable.
        steps: 1 takes the gradient in the clean run (EAP): an edge into a saturated softmax gets 0
            there, whatever hangs on it. More average it over inputs between the corrupted and the
            clean embeddings (EAP-IG; 5 in the paper), which sees such edges once some step falls
            where the softmax turns: the sharper it is, the more it takes. What several edges do
            only together is then shared among them.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.
        progress: Called with (done, steps); may raise to cancel.

    Raises:
        TypeError: There is no model to run, or `steps` is no whole number.
        ValueError: The model is wrapped, or has no write of each head; `steps` is below 1; the
            metric has no gradient, or, as "kl" in one step, one that is 0 for everything.

    Source: Syed et al. 2023, "Attribution Patching Outperforms Automated Circuit Discovery";
    Hanna et al. 2024, "Have Faith in Faithfulness".
    """
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError(f"steps is a whole number, got {steps!r}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if steps == 1:
        refuse_flat(metric, "Take steps=5")
    graph = graph_of(model)
    about: dict[str, Any] = {"metric": metric, "mask": mask, "hooks": hooks}
    ends = ends_of(model, clean, corrupted, direction="noising", **about)
    base = recorded(model, ends.base, sender_names(graph), ends.measure, hooks)
    source = recorded(model, ends.source, sender_names(graph), ends.measure, hooks)
    change = written(graph, source.cache) - written(graph, base.cache)
    first = SITES["resid"].format(0)
    embedded = (base.cache[first], source.cache[first])
    slope = _mean_slope(model, graph, ends, embedded, steps, hooks, progress)
    per_example = torch.einsum("ubtd,rbtd->urb", change, slope)
    scores = weighted_mean(per_example, ends.base.weights)
    method = "attribution" if steps == 1 else f"attribution, {steps} steps"
    return _scores(graph, ends, scores, (base.values, source.values), method, metric)


def edge_patching(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    metric: str | Metric = "logit_difference",
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
    memory: int | None = None,
    progress: Progress | None = None,
) -> EdgeScores:
    """The exact score of every edge, each patched in a run of its own: for small models.

    Arguments are those of `edge_attribution`, with `memory` and `progress` as in `sweep`.

    Raises:
        TypeError: There is no model to run.
        ValueError: The model is wrapped, or has no write of each head.
    """
    graph = graph_of(model)
    about: dict[str, Any] = {"metric": metric, "mask": mask, "hooks": hooks}
    ends = ends_of(model, clean, corrupted, direction="noising", **about)
    edges = graph.edges()
    where = edges.nonzero()
    kept = edges.repeat(len(where) + 2, 1, 1)
    kept[torch.arange(len(where)), where[:, 0], where[:, 1]] = False
    kept[-1] = False  # nothing: the corrupted run; before it, the whole model
    how: dict[str, Any] = {"hooks": hooks, "memory": memory, "progress": progress}
    values = circuit_values(model, graph, ends, kept, **how)
    scores = values.new_full(edges.shape, torch.nan)
    change = weighted_mean(values[:-2] - values[-2], ends.base.weights)
    scores[edges.to(scores.device)] = change
    return _scores(graph, ends, scores, (values[-2], values[-1]), "patching", metric)


def _mean_slope(
    model: Any,
    graph: Graph,
    ends: Ends,
    embedded: tuple[Tensor, Tensor],
    steps: int,
    hooks: Hooks,
    progress: Progress | None,
) -> Float[Tensor, "receiver B T d_model"]:
    names, total = receiver_names(graph), None
    base, source = embedded
    for k in range(1, steps + 1):
        between = source + (k / steps) * (base - source)
        start: list[tuple[str, Hook]] = [(SITES["resid"].format(0), _instead(between))]
        found = gradients(model, ends.base, names, ends.measure, hooks=[*hooks, *start])
        slope = by_receiver(graph, found)
        total = slope if total is None else total + slope
        if progress is not None:
            progress(k, steps)
    assert total is not None
    return total / steps


def _instead(x: Tensor) -> Hook:
    return lambda _, point: x.clone()


def _scores(
    graph: Graph,
    ends: Ends,
    scores: Tensor,
    values: tuple[Tensor, Tensor],
    method: str,
    metric: str | Metric,
) -> EdgeScores:
    weights = ends.base.weights
    return EdgeScores(
        scores=scores.masked_fill(~graph.edges().to(scores.device), torch.nan),
        clean=weighted_mean(values[0], weights),
        corrupted=weighted_mean(values[1], weights),
        weights=weights,
        senders=graph.senders,
        receivers=graph.receivers,
        method=method,
        metric=metric_name(metric),
    )
