"""Sets of heads: what is lost when all are cut, when each is, and when one alone is kept."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.ablation.heads import all_heads, checked_heads
from interp.ablation.kinds import Head, Request, cut_of
from interp.ablation.outcomes import Group, head_name
from interp.hooks import Hooks
from interp.metrics import Metric, weighted_mean
from interp.sweeps import Plan, Progress, examples_of, metric_name, run


def group(
    model: Any,
    tokens: Any,
    *,
    heads: Iterable[tuple[int, int]],
    kind: str = "zero",
    reference: Any = None,
    metric: str | Metric = "loss",
    random_sets: int = 0,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    generator: torch.Generator | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Group:
    """Cut a set of heads together, each, cumulatively in the order given, and all but each.

    Args:
        model: Ours, or a wrapped one.
        tokens: Tokens or a Batch.
        heads: Pairs (layer, head).
        kind: What a cut head gives.
        reference: See `ablate`.
        metric: See `sweep`.
        random_sets: How many sets of as many heads are drawn from the whole model and cut: the
            baseline that a set has to beat.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.
        generator: For the random sets and "resample".
        memory: See `sweep`.
        progress: See `sweep`.

    Raises:
        ValueError: There are no heads, or they are not in this model; random sets without a
            generator.
    """
    chosen = checked_heads(model, heads)
    if not chosen:
        raise ValueError("a group needs at least one head: heads=[(layer, head), …]")
    examples = examples_of(tokens, mask)
    cut = cut_of(kind, Request(model, examples, reference=reference, generator=generator))
    drawn = _drawn(model, len(chosen), random_sets, generator)
    sets = [*_sets(chosen), *drawn]
    plan = Plan(metric, memory, hooks, progress, cut.needs)
    once, which = _distinct(sets, kind)
    outcome = run(model, examples, [cut.together(those) for those in once], plan)
    effects = outcome.effects[which]
    n = len(chosen)
    names = ("together", "each", "cumulative", "kept_alone", "random")
    shares = effects.split([1, n, n, n, len(drawn)])
    parts = {name: share for name, share in zip(names, shares, strict=True)}
    return _group(parts, outcome.clean, examples.weights, chosen, drawn, kind, metric)


def sets_together(
    model: Any, tokens: Any, sets: Sequence[Sequence[Head]], *, kind: str = "zero"
) -> Float[Tensor, " set"]:
    """What cutting each set of heads together changes: `group` without all but `together`.

    Args:
        model: Ours, or a wrapped one.
        tokens: Tokens or a Batch.
        sets: Pairs (layer, head), each set cut by itself.
        kind: What a cut head gives.
    """
    examples = examples_of(tokens, None)
    cut = cut_of(kind, Request(model, examples))
    plan = Plan("loss", None, (), None, cut.needs)
    outcome = run(model, examples, [cut.together(list(heads)) for heads in sets], plan)
    return weighted_mean(outcome.effects, examples.weights)


def _sets(heads: list[Head]) -> list[list[Head]]:
    alone = [[head] for head in heads]
    cumulative = [heads[: n + 1] for n in range(len(heads))]
    all_but = [[other for other in heads if other != head] for head in heads]
    return [heads, *alone, *cumulative, *all_but]


def _distinct(sets: list[list[Head]], kind: str) -> tuple[list[list[Head]], list[int]]:
    """Each set once, and which of these each is; what "resample" gives is drawn for each."""
    if kind == "resample":
        return sets, list(range(len(sets)))
    places: dict[frozenset[Head], int] = {}
    which = [places.setdefault(frozenset(heads), len(places)) for heads in sets]
    return [sets[which.index(place)] for place in range(len(places))], which


def _drawn(model: Any, size: int, n: int, generator: torch.Generator | None) -> list[list[Head]]:
    if n and generator is None:
        raise ValueError("random sets are drawn: pass generator=torch.Generator().manual_seed(…)")
    every = all_heads(model)
    orders = (torch.randperm(len(every), generator=generator) for _ in range(n))
    return [[every[int(i)] for i in order[:size]] for order in orders]


def _group(
    parts: dict[str, Tensor],
    clean: Tensor,
    weights: Tensor,
    heads: list[Head],
    drawn: list[list[Head]],
    kind: str,
    metric: str | Metric,
) -> Group:
    parts["together"] = parts["together"][0]
    values: dict[str, Any] = {}
    for name, effects in parts.items():
        asked = name != "random" or bool(drawn)
        values[name] = weighted_mean(effects, weights) if asked else None
        values[f"{name}_per_example"] = effects if asked else None
    return Group(
        **values,
        clean=weighted_mean(clean, weights),
        weights=weights,
        heads=tuple(map(head_name, heads)),
        random_heads=tuple(" ".join(map(head_name, those)) for those in drawn),
        kind=kind,
        metric=metric_name(metric),
    )
