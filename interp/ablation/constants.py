"""Optimal ablation: the constant in place of a head that costs least."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation.heads import all_heads
from interp.ablation.reference import means_of
from interp.metrics import weighted_mean
from interp.sweeps import Edit, Examples, Intervention, Plan, Progress, Slots, evaluating
from interp.sweeps.examples import measure_of, measured
from interp.sweeps.memory import budget_of
from interp.sweeps.planner import batches, clean_run, entries_of, logits_of

STEPS, RATE = 60, 0.1


def optimal_constants(
    model: Any,
    examples: Examples,
    *,
    steps: int = STEPS,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Float[Tensor, "layer pos head d_head"]:
    """For each head alone, the z at each position that gives the least loss on these examples.

    Started from zero or the mean, whichever costs less; Adam on all examples, at a rate of a
    tenth of the head's z in size; the best iterate is kept, so that on these examples none is
    worse than either.

    `progress` is called with (done, total) after each step, and may raise to cancel.

    Source: Li & Janson 2024, "Optimal Ablation for Interpretability". There the constant is the
    same at all positions; here it has the axes of the mean that it is compared with.
    """
    means = means_of(model, examples, "z")
    heads = [(layer, head) for layer, head in all_heads(model) if head is not None]
    best = torch.empty_like(means.table)
    with evaluating(model):
        shown = [_constant(layer, head, means.of(layer, head)) for layer, head in heads]
        clean = clean_run(model, examples, shown, Plan())
        entries = entries_of(model, shown)
        budget = budget_of(model, examples, memory, splits=False)
        parts = list(batches(entries, budget.interventions))
        for number, (entry, chosen) in enumerate(parts):
            some = [heads[n] for n in chosen]
            losses = _losses(model, examples, clean, entry, some)
            mean = torch.stack([means.of(layer, head) for layer, head in some])
            told = _share(progress, number, len(parts))
            found = _least(losses, [torch.zeros_like(mean), mean], steps, told)
            for (layer, head), own in zip(some, found, strict=True):
                best[layer, :, head] = own
    return best


def _losses(
    model: Any, examples: Examples, clean: Any, entry: Any, heads: list[tuple[int, int]]
) -> Callable[[Tensor], Tensor]:
    """From constants [head pos d_head] of some heads to the loss with each cut alone [head]."""

    def losses(constants: Tensor) -> Tensor:
        cut = [_constant(n, h, own) for (n, h), own in zip(heads, constants, strict=True)]
        logits = logits_of(model, clean, entry, cut)
        measure = measure_of("loss", clean.logits)
        parts = logits.split(len(examples))
        values = torch.stack([measured(measure, own, examples) for own in parts])
        return weighted_mean(values, examples.weights)

    return losses


def _constant(layer: int, head: int, table: Float[Tensor, "pos d_head"]) -> Intervention:
    def change(x: Tensor, slots: Slots) -> Tensor:
        return table[slots.position].to(x.dtype)

    return Intervention((Edit("z", layer, head, change),))


@dataclass
class _Best:
    """The least loss so far of each head of a batch, and where it was."""

    values: Float[Tensor, "head pos d_head"]
    losses: Float[Tensor, " head"]

    def offer(self, values: Tensor, losses: Tensor) -> None:
        better = losses < self.losses
        self.losses = torch.where(better, losses, self.losses)
        self.values = torch.where(better[:, None, None], values, self.values)


def _share(progress: Progress | None, n_done: int, n_parts: int) -> Progress:
    """Progress within one part, told as progress of all."""

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(n_done * total + done, n_parts * total)

    return told


def _least(
    losses: Any, starts: Sequence[Tensor], steps: int, told: Progress
) -> Float[Tensor, "head pos d_head"]:
    """Descend from the best start of each head."""
    best = _Best(starts[0], losses(starts[0]))
    for start in starts[1:]:
        best.offer(start, losses(start))
    size = starts[-1].pow(2).mean((1, 2), keepdim=True).sqrt().clamp(min=1e-6)
    step = torch.zeros_like(best.values, requires_grad=True)  # in units of the head's own size
    origin = best.values
    optimizer = torch.optim.Adam([step], lr=RATE)
    with torch.enable_grad():
        for done in range(steps):
            values = origin + step * size
            found = losses(values)
            best.offer(values.detach(), found.detach())
            (step.grad,) = torch.autograd.grad(found.sum(), [step])
            optimizer.step()
            told(done + 1, steps)
    best.offer((origin + step * size).detach(), losses((origin + step * size).detach()).detach())
    return best.values
