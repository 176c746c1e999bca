"""Which heads back each other up, and which need each other: cuts of two at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation import HeadSweep, pairwise
from interp.ablation.outcomes import head_name
from interp.report.subject import Subject
from interp.results import Result
from interp.sweeps import bootstrap_interval

MOST = 12  # heads that are paired: 66 pairs


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Result):
    """What pairs of heads are worth beyond what both are worth alone, in nats of loss.

    Attributes:
        interaction: Both cut, less each alone, as a rise of the loss: positive, they back each
            other up; negative, each needs the other. NaN on the diagonal.
        low: Lower end of the 95 % bootstrap interval over sequences.
        high: Upper end.
        alone: What each costs alone.
        heads: Those that were paired.
        all_heads: Whether these are all heads of the model; else those that cost most alone.
    """

    axes: ClassVar = {
        **dict.fromkeys(("interaction", "low", "high"), ("head", "other")),
        "alone": ("head",),
    }
    coordinates: ClassVar = {"head": "heads", "other": "heads"}

    interaction: Float[Tensor, "head other"]
    low: Float[Tensor, "head other"]
    high: Float[Tensor, "head other"]
    alone: Float[Tensor, " head"]
    heads: tuple[str, ...]
    all_heads: bool

    def strongest(self, n: int) -> list[tuple[str, str, float, float, float]]:
        """The pairs whose interaction is largest in size: both names, it, its interval."""
        rows, columns = torch.triu_indices(len(self.heads), len(self.heads), offset=1).tolist()
        pairs = sorted(
            zip(rows, columns, strict=True), key=lambda at: -abs(float(self.interaction[at]))
        )
        found = []
        for a, b in pairs[:n]:
            value, low, high = (float(x[a, b]) for x in (self.interaction, self.low, self.high))
            found.append((self.heads[a], self.heads[b], value, low, high))
        return found


def interactions_of(
    subject: Subject, cut: HeadSweep, *, named: Iterable[tuple[int, int]] = ()
) -> Interactions | None:
    """Cut every pair of heads on held-out sequences, as single heads were; None of one head.

    Args:
        subject: The model, and what it is shown.
        cut: What each head costs alone: of many, the `MOST` that cost most are paired.
        named: Heads that are paired first, whatever they cost alone.
    """
    n_heads = cut.effect.shape[1]
    if cut.effect.numel() < 2:
        return None
    costs = cut.effect.flatten().argsort(descending=True).tolist()
    ranked = dict.fromkeys([*named, *(divmod(i, n_heads) for i in costs)])
    chosen = sorted(list(ranked)[:MOST])
    how = {"kind": "mean", "reference": subject.reference, "heads": chosen}
    pairs = pairwise(subject.model, subject.batch, **how)
    at = torch.tensor([layer * n_heads + head for layer, head in chosen])
    size = cut.effect.numel()

    def among(x: Tensor) -> Tensor:
        return x.reshape(size, size, *x.shape[4:])[at[:, None], at[None, :]]

    low, high = bootstrap_interval(among(pairs.interaction_per_example), pairs.weights)
    return Interactions(
        interaction=among(pairs.interaction),
        low=low.float(),
        high=high.float(),
        alone=pairs.effect.flatten()[at],
        heads=tuple(map(head_name, chosen)),
        all_heads=len(chosen) == size,
    )
