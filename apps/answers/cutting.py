"""What happens without heads."""

from dataclasses import dataclass

import numpy as np
import torch

from apps.answers.heads import asking, batch_for
from apps.answers.instead import Instead, refusals
from apps.answers.reading import Guess, guesses, logits_of, losses_from
from apps.prompts import Prompt
from apps.sources import Opened
from interp import ablation, metrics
from interp.ablation.constants import optimal_constants
from interp.sweeps import Progress, examples_of
from interp.tasks import Batch

Heads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cut:
    """A prompt read with some heads cut, beside the clean run.

    Attributes:
        clean: Loss at each token [T].
        ablated: The same without the heads.
        clean_top: The likeliest tokens at the pinned position.
        ablated_top: The same without the heads.
    """

    clean: np.ndarray
    ablated: np.ndarray
    clean_top: list[Guess]
    ablated_top: list[Guess]

    @property
    def difference(self) -> np.ndarray:
        """Δloss at each token, ablated − clean."""
        return self.ablated - self.clean


def _samples(opened: Opened, prompt: Prompt | None) -> Batch:
    """Samples as long as what is cut; the prompt itself where samples are shorter."""
    if prompt is not None and outgrows_samples(opened, prompt):
        return prompt.read_batch
    return batch_for(opened, None)


def outgrows_samples(opened: Opened, prompt: Prompt) -> bool:
    """Whether what is taken from samples does not reach the end of a prompt."""
    return len(prompt.tokens) > batch_for(opened, None).tokens.shape[1]


def fitted(
    opened: Opened, prompt: Prompt | None, *, progress: Progress | None = None
) -> torch.Tensor:
    """The constants [L T H E] that cost the least loss on held-out samples, or on a longer prompt.

    Raises:
        UnreadableError: Nothing is asked there.
    """
    with refusals():
        return optimal_constants(
            opened.model, examples_of(_samples(opened, prompt), None), progress=progress
        )


def means(opened: Opened, prompt: Prompt | None) -> torch.Tensor:
    """The mean z [L T H E] of each head at each position of samples, or of a longer prompt."""
    with refusals():
        return ablation.reference_mean(opened.model, _samples(opened, prompt))


def cut(opened: Opened, prompt: Prompt, heads: Heads, instead: Instead, position: int) -> Cut:
    """One prompt, clean and without the heads."""
    clean = logits_of(opened, prompt.batch)
    changed = clean
    if heads:
        with refusals():
            changed = ablation.ablate(
                opened.model,
                prompt.batch.tokens,
                heads=heads,
                **instead.options(_samples(opened, prompt)),
            )
    tops = [guesses(opened, logits, position, 5) for logits in (clean, changed)]
    return Cut(losses_from(clean, prompt), losses_from(changed, prompt), *tops)


@dataclass(frozen=True)
class Bars:
    """Effects with 95 % intervals, in sections."""

    labels: list[str]
    effects: list[float]
    intervals: list[tuple[float, float]]
    sections: list[str]


SECTIONS = {
    "together": "all cut together",
    "each": "each cut alone",
    "kept_alone": "each kept alone (the others cut)",
}


def group(
    opened: Opened,
    prompt: Prompt | None,
    heads: Heads,
    instead: Instead,
    *,
    progress: Progress | None = None,
) -> Bars:
    """Δloss of a set of heads: together, each, and each kept alone."""
    with refusals():
        found = ablation.group(
            opened.model,
            asking(opened, prompt),
            heads=heads,
            progress=progress,
            **instead.options(_samples(opened, prompt)),
        )
    bars = Bars([], [], [], [])
    for which, section in SECTIONS.items():
        if which != "together" and len(heads) == 1:
            continue
        effects = getattr(found, which).reshape(-1).tolist()
        low, high = (end.reshape(-1).tolist() for end in found.interval(which))
        bars.labels.extend([" ".join(found.heads)] if which == "together" else found.heads)
        bars.effects.extend(effects)
        bars.intervals.extend(zip(low, high, strict=True))
        bars.sections.extend([section] * len(effects))
    return bars


def elsewhere(opened: Opened, heads: Heads, instead: Instead, clean: float) -> float | None:
    """Δloss of a set of heads where the task does not ask (next token); None if it asks always.

    Args:
        opened: The model.
        heads: What is cut.
        instead: What they give.
        clean: The loss there as it is: `ScoreCard.elsewhere`.
    """
    batch = batch_for(opened, None)
    targets = metrics.next_token_targets(batch.tokens, batch.mask)
    targets = targets.masked_fill(batch.targets != metrics.UNSCORED, metrics.UNSCORED)
    if not bool((targets != metrics.UNSCORED).any()):
        return None
    with refusals():
        changed = ablation.ablate(
            opened.model, batch.tokens, heads=heads, mask=batch.mask, **instead.options(batch)
        )
    return float(metrics.per_token_loss(changed, targets).nanmean()) - clean


def sweep_rows(found: ablation.HeadSweep) -> list[dict[str, object]]:
    """A row a head: its effect, and both ends of its interval; strongest first."""
    low, high = found.interval()
    rows = [
        {
            "head": f"L{layer}H{head}",
            "Δloss": round(float(found.effect[layer, head]), 4),
            "low": round(float(low[layer, head]), 4),
            "high": round(float(high[layer, head]), 4),
        }
        for layer in range(found.effect.shape[0])
        for head in range(found.effect.shape[1])
    ]
    return sorted(rows, key=lambda row: -abs(float(str(row["Δloss"]))))
