"""What happens without heads."""

from dataclasses import dataclass

import numpy as np
import torch

from apps.answers.heads import asking, batch_for
from apps.answers.reading import Guess, guesses, logits_of, losses_from
from apps.prompts import Prompt
from apps.sources import Opened
from interp import ablation, metrics
from interp.sweeps import Progress
from interp.tasks import Batch

Heads = tuple[tuple[int, int], ...]

KINDS = {  # what each kind of ablation puts in place of the head's output
    "zero": "nothing",
    "mean": "its mean at the same position, over held-out samples",
    "grand_mean": "its mean over samples and positions",
    "resample": "what it gave in another sample, at the same position",
    "uniform": "its values, mixed evenly over all keys it may see",
    "pattern_preserving": "nothing, while all attention patterns are held as they were",
    "direct": "nothing, but only where the last norm reads; later layers see it as it was",
}
WITH_REFERENCE = ("mean", "grand_mean", "resample")


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


def _reference(opened: Opened, prompt: Prompt | None, kind: str) -> Batch | None:
    """Samples as long as what is cut; the prompt itself where samples are shorter."""
    if kind not in WITH_REFERENCE:
        return None
    batch = batch_for(opened, None)
    if prompt is not None and len(prompt.tokens) > batch.tokens.shape[1]:
        return prompt.batch
    return batch


def _generator(kind: str) -> torch.Generator | None:
    return torch.Generator().manual_seed(0) if kind == "resample" else None


def cut(opened: Opened, prompt: Prompt, heads: Heads, kind: str, position: int) -> Cut:
    """One prompt, clean and without the heads."""
    clean = logits_of(opened, prompt.batch)
    changed = clean
    if heads:
        changed = ablation.ablate(
            opened.model,
            prompt.batch.tokens,
            heads=heads,
            kind=kind,
            reference=_reference(opened, prompt, kind),
            generator=_generator(kind),
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
    kind: str,
    *,
    progress: Progress | None = None,
) -> Bars:
    """Δloss of a set of heads: together, each, and each kept alone."""
    found = ablation.group(
        opened.model,
        asking(opened, prompt),
        heads=heads,
        kind=kind,
        reference=_reference(opened, prompt, kind),
        generator=_generator(kind),
        progress=progress,
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


def elsewhere(opened: Opened, heads: Heads, kind: str) -> float | None:
    """Δloss of a set of heads where the task does not ask (next token); None if it asks always."""
    batch = batch_for(opened, None)
    targets = metrics.next_token_targets(batch.tokens, batch.mask)
    targets = targets.masked_fill(batch.targets != metrics.UNSCORED, metrics.UNSCORED)
    if not bool((targets != metrics.UNSCORED).any()):
        return None
    changed = ablation.ablate(
        opened.model,
        batch.tokens,
        heads=heads,
        kind=kind,
        mask=batch.mask,
        reference=_reference(opened, None, kind),
        generator=_generator(kind),
    )
    losses = [
        metrics.per_token_loss(logits, targets).nanmean()
        for logits in (logits_of(opened, batch), changed)
    ]
    return float(losses[1] - losses[0])


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
