"""Heads beside heads: sweeps with a set already cut, and every pair."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.ablation.heads import all_heads, checked_heads
from interp.ablation.kinds import Cut, Head, Request, cut_of
from interp.ablation.outcomes import HeadSweep, Pairwise, head_name, swept
from interp.hooks import Hooks
from interp.metrics import Metric, weighted_mean
from interp.sweeps import Examples, Outcome, Plan, Progress, examples_of, metric_name, run


def conditional(
    model: Any,
    tokens: Any,
    *,
    given: Iterable[tuple[int, int]],
    kind: str = "zero",
    reference: Any = None,
    metric: str | Metric = "loss",
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    generator: torch.Generator | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> HeadSweep:
    """What cutting each head changes once the set `given` is cut (co-ablation).

    `.clean` is the metric with the set cut, and effects are relative to it: a head that backs the
    set up, and costs nothing by itself, shows here. The set's own heads are NaN. Arguments are
    those of `sweep`.

    Raises:
        ValueError: `given` is empty, or not in this model.
    """
    cut_already = checked_heads(model, given)
    if not cut_already:
        raise ValueError("conditional needs heads that are cut already: given=[(layer, head), …]")
    examples = examples_of(tokens, mask)
    cut = cut_of(kind, Request(model, examples, reference=reference, generator=generator))
    plan = Plan(metric, memory, hooks, progress, cut.needs)
    rest = [head for head in all_heads(model) if head not in cut_already]
    outcome = _on_top(model, examples, cut, plan, cut_already, rest)
    shape = (model.config.n_layers, model.config.n_heads, len(examples))
    effects = outcome.clean.new_full(shape, torch.nan)
    for (layer, head), effect in zip(rest, outcome.effects, strict=True):
        assert head is not None
        effects[layer, head] = effect
    about: dict[str, Any] = {"kind": kind, "site": "z", "metric": metric_name(metric)}
    about["given"] = tuple(map(head_name, cut_already))
    return HeadSweep(**swept(effects, outcome.clean, examples.weights, **about))


def pairwise(
    model: Any,
    tokens: Any,
    *,
    kind: str = "zero",
    reference: Any = None,
    metric: str | Metric = "loss",
    heads: Iterable[tuple[int, int]] | None = None,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    generator: torch.Generator | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Pairwise:
    """What cutting each pair of heads changes, and how that differs from the sum of both.

    For each head, the run with it cut is kept, and the heads at and above its layer are swept on
    top of it. Pairs cannot see that four heads back each other up: see `group` and `conditional`.
    Arguments are those of `sweep`: of `heads`, only pairs among them are cut, the others are NaN.

    Raises:
        ValueError: Fewer than two heads are left to be paired.
    """
    examples = examples_of(tokens, mask)
    cut = cut_of(kind, Request(model, examples, reference=reference, generator=generator))
    chosen = _in_order(model, heads)
    n, done = len(chosen), 0
    total = n + n * (n - 1) // 2

    def told(now: int, _: int) -> None:
        if progress is not None:
            progress(done + now, total)

    plan = Plan(metric, memory, hooks, told, cut.needs)
    alone = run(model, examples, [cut.together([head]) for head in chosen], plan)
    joint = alone.clean.new_zeros(n, n, len(examples))
    joint.diagonal().copy_(alone.effects.T)
    done = n
    for i, first in enumerate(chosen[:-1]):
        others = chosen[i + 1 :]
        outcome = _on_top(model, examples, cut, replace(plan, progress=told), [first], others)
        joint[i, i + 1 :] = joint[i + 1 :, i] = outcome.changed - alone.clean
        done += len(others)
    about = {"kind": kind, "metric": metric_name(metric)}
    return _pairwise(joint, chosen, alone, examples, model, **about)


def _in_order(model: Any, heads: Iterable[tuple[int, int]] | None) -> list[Head]:
    """By layer, so that a later head is cut on top of an earlier one."""
    chosen = all_heads(model) if heads is None else sorted(checked_heads(model, heads))
    if len(chosen) < 2:
        raise ValueError(f"a pair needs two heads, there is {len(chosen)}")
    return chosen


def _on_top(
    model: Any, examples: Examples, cut: Cut, plan: Plan, base: list[Head], heads: list[Head]
) -> Outcome:
    singles = [cut.together([head]) for head in heads]
    return run(model, examples, singles, plan, base=cut.together(base))


def _pairwise(
    joint: Tensor,
    chosen: list[Head],
    alone: Outcome,
    examples: Examples,
    model: Any,
    *,
    kind: str,
    metric: str,
) -> Pairwise:
    n, layers, heads = len(joint), model.config.n_layers, model.config.n_heads
    single = joint.diagonal().T  # [head, example]
    interaction = joint - single[:, None] - single[None, :]
    same = torch.eye(n, dtype=torch.bool, device=joint.device)
    interaction = interaction.masked_fill(same[..., None], torch.nan)
    weights = examples.weights
    at = torch.tensor([layer * heads + head for layer, head in chosen], device=joint.device)

    def among_all(x: Tensor) -> Tensor:
        """[n n …] in the places of all pairs of heads, NaN elsewhere."""
        whole = x.new_full((layers * heads, layers * heads, *x.shape[2:]), torch.nan)
        whole[at[:, None], at[None, :]] = x
        return whole.view(layers, heads, layers, heads, *x.shape[2:])

    effect = single.new_full((layers * heads,), torch.nan)
    effect[at] = weighted_mean(single, weights)
    return Pairwise(
        joint=among_all(weighted_mean(joint, weights)),
        interaction=among_all(weighted_mean(interaction, weights)),
        effect=effect.view(layers, heads),
        clean=weighted_mean(alone.clean, weights),
        interaction_per_example=among_all(interaction),
        weights=weights,
        kind=kind,
        metric=metric,
    )
