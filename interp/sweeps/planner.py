"""Many interventions, each as if run alone from the start, in few and short runs.

The clean run is made once. Interventions that may start at the same place are stacked along the
batch, as many as a bound on memory allows; each run then starts at that place. A model that can't
start inside (a wrapped one), or that somebody else's hooks listen to, runs from the start, batched
likewise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import Hook, HookPoint, Hooks, hooks_in_force
from interp.metrics import METRICS, Metric
from interp.model import Transformer
from interp.sweeps.clean import CleanRun, record
from interp.sweeps.edits import NOTHING, Intervention, hooks_for
from interp.sweeps.entries import START, Entry, Resumed, entry_of, names_for, resume
from interp.sweeps.examples import Examples, measure_of, measured
from interp.sweeps.held import held_patterns
from interp.sweeps.memory import Budget, budget_of
from interp.sweeps.subject import evaluating
from interp.sweeps.suffix import behind, first_of, keys_before, with_clean_before

Progress = Callable[[int, int], object]
"""Is told (done, total) after each piece of work; may raise, to cancel."""


class Outcome(NamedTuple):
    """The metric of each example.

    Attributes:
        clean: As it is.
        changed: Under each intervention.
        baseline: What that is to be compared with: `clean`, or, where it edits a pattern, a run
            that materialises the same layers and edits nothing.
    """

    clean: Float[Tensor, "B"]
    changed: Float[Tensor, "intervention B"]
    baseline: Float[Tensor, "intervention B"]

    @property
    def effects(self) -> Float[Tensor, "intervention B"]:
        """Changed minus baseline."""
        return self.changed - self.baseline


@dataclass(frozen=True)
class Plan:
    """How a sweep is run.

    Attributes:
        metric: A name of `METRICS`, "kl" (against the clean run), or a function.
        memory: Bytes that activations may take (see `budget_of`). Examples are then swept some at
            a time, but not under `hooks` or for a metric of one's own, which see all of them.
        hooks: Hooks under which everything runs, the clean run too.
        progress: Told how far it is.
        needs: Further activations that changes read from the clean run, by name.
    """

    metric: str | Metric = "loss"
    memory: int | None = None
    hooks: Hooks = ()
    progress: Progress | None = None
    needs: frozenset[str] = frozenset()


def run(
    model: Any,
    examples: Examples,
    interventions: Sequence[Intervention],
    plan: Plan = Plan(),
    *,
    base: Intervention = NOTHING,
) -> Outcome:
    """The metric under each intervention, in their order.

    Args:
        model: Ours, or a wrapped one.
        examples: What it is run on.
        interventions: Each is made in a run of its own.
        plan: How.
        base: Made in every run, the clean one too.
    """
    asked, compared = _with_neutral_runs(interventions)
    named = isinstance(plan.metric, str) or plan.metric in METRICS.values()
    listened = any(hooks_in_force(model))  # whose hooks expect the batch that they were given
    splits = named and not plan.hooks and not listened
    patterns = len(asked) > len(interventions)
    calls = any(i.holds_patterns or i.first for i in asked)
    kept = {"splits": splits, "patterns": patterns, "calls": calls}
    budget = budget_of(model, examples, plan.memory, **kept)
    budget = replace(budget, interventions=1) if listened else budget
    starts = range(0, len(examples), budget.examples)
    parts = []
    with evaluating(model):
        for done, first in enumerate(starts):
            which = slice(first, min(first + budget.examples, len(examples)))
            told = _told(plan.progress, done, len(starts), len(asked), len(interventions))
            parts.append(_run_some(model, examples, which, asked, plan, base, budget, told))
    clean = torch.cat([clean for clean, _ in parts])
    changed = torch.cat([changed for _, changed in parts], 1)
    rows = [clean if n is None else changed[n] for n in compared]
    baseline = torch.stack(rows) if rows else changed
    return Outcome(clean, changed[: len(interventions)], baseline)


def _with_neutral_runs(
    interventions: Sequence[Intervention],
) -> tuple[list[Intervention], list[int | None]]:
    """All that is run, and for each intervention the number of its baseline (None: clean)."""
    asked, numbers = list(interventions), {}
    compared: list[int | None] = []
    for intervention in interventions:
        neutral = intervention.neutral()
        if neutral.edits and neutral not in numbers:
            numbers[neutral] = len(asked)
            asked.append(neutral)
        compared.append(numbers.get(neutral))
    return asked, compared


def _told(
    progress: Progress | None, part: int, parts: int, n_run: int, n: int
) -> Callable[[int], object]:
    """Progress of all parts together, in interventions; neutral runs are not counted apart."""
    if progress is None:
        return lambda done: None
    return lambda done: progress((part * n_run + done) * n // (parts * n_run), n)


def _run_some(
    model: Any,
    examples: Examples,
    which: slice,
    interventions: Sequence[Intervention],
    plan: Plan,
    base: Intervention,
    budget: Budget,
    told: Callable[[int], object],
) -> tuple[Float[Tensor, "B"], Float[Tensor, "intervention B"]]:
    """Sweep some of the examples: the metric of each, clean and under each intervention."""
    examples = examples.rows(which)
    clean = clean_run(model, examples, interventions, plan, base, which=which)
    measure = measure_of(plan.metric, clean.logits)
    values = measured(measure, clean.logits, examples)
    changed = values.new_empty(len(interventions), len(examples))
    done = 0
    entries = entries_of(model, interventions, plan.hooks, examples)
    for entry, numbers in batches(entries, budget.interventions):
        batch = [interventions[n] for n in numbers]
        logits = logits_of(model, clean, entry, batch, hooks=plan.hooks)
        for n, own in zip(numbers, logits.split(len(examples)), strict=True):
            changed[n] = measured(measure, own, examples)
        done += len(numbers)
        told(done)
    return values, changed


def entries_of(
    model: Any,
    interventions: Sequence[Intervention],
    hooks: Hooks = (),
    examples: Examples | None = None,
) -> list[Entry]:
    """Where each intervention may start in this model; on these examples, at which position too."""
    if not resumes(model, hooks):
        return [START] * len(interventions)
    entries = [entry_of(i, model.config) for i in interventions]
    if examples is None or examples.mask is not None:
        return entries
    length, pairs = examples.tokens.shape[1], zip(entries, interventions, strict=True)
    return [replace(entry, first=first_of(i, model.config, length)) for entry, i in pairs]


def resumes(model: Any, hooks: Hooks = ()) -> bool:
    """Whether runs of this model may start at a layer: our own, and nobody else listens."""
    return isinstance(model, Transformer) and not hooks and not any(hooks_in_force(model))


def clean_run(
    model: Any,
    examples: Examples,
    interventions: Sequence[Intervention],
    plan: Plan,
    base: Intervention = NOTHING,
    *,
    which: slice = slice(None),
) -> CleanRun:
    """The run that others start from, with all that these interventions read of it."""
    entries = entries_of(model, interventions, plan.hooks, examples)
    names = set(plan.needs)
    if isinstance(model, Transformer):
        names |= names_for(sorted(set(entries)), model)
    calls = any(i.holds_patterns for i in [base, *interventions]) or any(e.first for e in entries)
    clean = record(model, examples, names, which=which, calls=calls, hooks=plan.hooks)
    return clean if base == NOTHING else under(model, clean, base, names, plan.hooks)


def under(
    model: Any, clean: CleanRun, base: Intervention, names: set[str], hooks: Hooks
) -> CleanRun:
    """The same under an intervention, which every run that starts from it goes on making."""
    own = hooks_for([base], len(clean.examples), clean.slots)
    kernel = held_patterns(clean, [base]).get("kernel")
    run = record(model, clean.examples, names, hooks=[*hooks, *own], kernel=kernel)
    return replace(run, slots=clean.slots, calls=clean.calls, base=base)


def batches(entries: Sequence[Entry], most: int) -> Iterator[tuple[Entry, list[int]]]:
    """The interventions (by number) that start together, at most so many at a time."""
    together: dict[Entry, list[int]] = {}
    for n, entry in enumerate(entries):
        together.setdefault(entry, []).append(n)
    for entry, numbers in together.items():
        for first in range(0, len(numbers), most):
            yield entry, numbers[first : first + most]


def logits_of(
    model: Any,
    clean: CleanRun,
    entry: Entry,
    interventions: Sequence[Intervention],
    *,
    hooks: Hooks = (),
) -> Float[Tensor, "rows T V"]:
    """Logits of a batch of interventions that start together, one after the other."""
    if entry == START:
        full = [i.on_top_of(clean.base) for i in interventions]
        tokens = clean.examples.tokens.repeat(len(interventions), 1)
        return _logits(model, clean, Resumed(tokens, 0, full), hooks, {})
    m, first = len(interventions), entry.first if clean.base == NOTHING else 0
    last = behind(clean, first)
    at = resume(model, last, entry, interventions)
    how: dict[str, Any] = {"start_at_layer": at.layer}
    if first:
        above = range(at.layer, model.config.n_layers)
        how["kv_cache"] = keys_before(clean, first, above, m)
    return with_clean_before(clean, first, _logits(model, last, at, hooks, how), m)


def _logits(
    model: Any, clean: CleanRun, at: Resumed, hooks: Hooks, how: dict[str, Any]
) -> Float[Tensor, "rows T V"]:
    examples, m = clean.examples, len(at.rest)
    mask = None if examples.mask is None else examples.mask.repeat(m, 1)
    own = hooks_for(at.rest, len(examples), clean.slots)
    how |= held_patterns(clean, at.rest)
    return model(at.resid, mask=mask, hooks=[*shared_out(hooks, len(examples)), *own], **how)


def shared_out(hooks: Hooks, n_examples: int) -> Hooks:
    """The same hooks, run on each intervention's rows apart, as if it ran alone."""
    return [(which, _shared_out(hook, n_examples)) for which, hook in hooks]


def _shared_out(hook: Hook, n_examples: int) -> Hook:
    def on_each(x: Tensor, point: HookPoint) -> Tensor:
        parts = []
        for part in x.split(n_examples):
            given = hook(part, point)
            parts.append(part if given is None else given)
        return torch.cat(parts)

    return on_each
