"""What an induction group stands on: earlier heads, chosen by what cutting them does to its score.

Not by their own previous-token score: a head may look one token back only in some places, and
several may share the work, so that no single one has a high score, or a large effect.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import HookPoint, Hooks
from interp.model import Transformer
from interp.probes import induction_scores
from interp.results import Result

Heads = Sequence[tuple[int, int]]
FALLEN = 0.5  # the group stands on what takes its score below this share when cut
LEAST = 0.02  # a drop of the score that is smaller is not counted
SEQUENCES = 8  # a period


@dataclass(frozen=True)
class Carriers(Result):
    """The earlier heads that a group of induction heads depends on.

    Attributes:
        score: The group's mean induction score as it is.
        score_without: The same with each head cut alone, NaN for heads that are not earlier.
        heads: Those that take the score below half when they are cut together, the one that
            takes most alone first; empty if no earlier heads do.
        score_without_all: With all of `heads` cut; NaN if there are none.
        group: The induction heads.
    """

    axes: ClassVar = {"score_without": ("layer", "head")}
    score_without: Float[Tensor, "layer head"]
    score: float
    heads: tuple[tuple[int, int], ...]
    score_without_all: float
    group: tuple[tuple[int, int], ...]


@torch.no_grad()
def carriers_of(
    model: Transformer, group: Heads, *, means: Float[Tensor, "L T H E"], periods: Sequence[int]
) -> Carriers:
    """Cut every head below the group's last layer, alone, then together, until the score falls.

    Args:
        model: The model.
        group: The induction heads.
        means: What a cut head gives at each position (`interp.ablation.reference_mean`).
        periods: Where the induction score is taken.
    """

    def score(cut: Heads) -> float:
        hooks = hooks_that_cut(cut, means)
        scores = induction_scores(model, periods=periods, n_sequences=SEQUENCES, hooks=hooks)
        return sum(float(scores[head]) for head in group) / len(group)

    clean = score([])
    last = max(layer for layer, _ in group)
    alone = torch.full((model.config.n_layers, model.config.n_heads), torch.nan)
    for layer in range(last):
        for head in range(model.config.n_heads):
            if (layer, head) not in group:
                alone[layer, head] = score([(layer, head)])
    chosen, without = _until_fallen(alone, clean, score)
    return Carriers(alone, clean, tuple(chosen), without, tuple(group))


def _until_fallen(
    alone: Float[Tensor, "layer head"], clean: float, score: Callable[[Heads], float]
) -> tuple[list[tuple[int, int]], float]:
    """The heads whose cuts cost most, as many as take the score below `FALLEN`; or none."""
    useful = [(int(a), int(b)) for a, b in (alone < clean - LEAST).nonzero().tolist()]
    cut: list[tuple[int, int]] = []
    for head in sorted(useful, key=lambda at: float(alone[at])):
        cut.append(head)
        without = score(cut)
        if without < FALLEN * clean:
            return cut, without
    return [], float("nan")


def hooks_that_cut(heads: Heads, means: Float[Tensor, "L T H E"]) -> Hooks:
    """Hooks that give each head its mean at the position in place of its z."""

    def cut(z: Tensor, hook: HookPoint) -> Tensor:
        layer, z = hook.layer(), z.clone()
        for head in (h for at, h in heads if at == layer):
            z[:, :, head] = means[layer, : z.shape[1], head].to(z)
        return z

    return [(f"blocks.{layer}.attn.hook_z", cut) for layer in sorted({at for at, _ in heads})]
