"""Find induction heads, and tell them from heads that look like them.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads": a head that attends to what
followed earlier occurrences of the current token (prefix matching), and raises the logit of what
it attends to (copying). Added here are several periods, and a control on which a head that looks
a fixed distance back does as well as on the real thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.tiles import MEMORY
from interp.hooks import Hooks
from interp.probes.matches import Matches
from interp.probes.observed import Layer, Model, Progress, check_model, counted, observe
from interp.probes.row_statistics import Asked, induction_of
from interp.probes.rows import counted_rows
from interp.probes.sequences import Room
from interp.probes.sums import Sums
from interp.probes.trials import Outcome, Trial, run_trial
from interp.results import Result

QUANTILE = 1.96
"""Intervals are means ± this many standard errors: 95 %."""


def induction_scores(
    model: Model,
    *,
    generator: torch.Generator | None = None,
    periods: Sequence[int] | None = None,
    n_sequences: int = 16,
    hooks: Hooks = (),
    progress: Progress | None = None,
) -> Float[Tensor, "layer head"]:
    """Attention to what followed earlier occurrences, on repeated blocks of random tokens.

    A perfect induction head scores 1; but so does a head that looks back by the one period tried.
    `find_induction_heads` tells them apart.

    Args:
        model: A `Transformer`, or a wrapped model.
        generator: Draws the sequences. None: a fixed seed.
        periods: Lengths of the blocks. None: three that fit the model's context.
        n_sequences: Sequences a period.
        hooks: Interventions to run the model under.
        progress: Called with how many periods are done, and out of how many.

    Raises:
        ValueError: A period is shorter than 3, or does not fit.
    """
    room = room_of(model)
    periods = room.default_periods() if periods is None else room.checked(periods)
    generator = seeded(generator)
    sums, length = Sums(model.config.n_layers, model.config.n_heads), room.length(periods)
    for period in counted(periods, progress):
        tokens = room.repeated(period, n=n_sequences, length=length, generator=generator)
        _add_scores(sums, model, tokens.to(model.W_U.device), hooks)
    return sums.mean("induction")


def _add_scores(sums: Sums, model: Model, tokens: Tensor, hooks: Hooks) -> None:
    counts = counted_rows(tokens, bos_token=model.config.bos_token)
    asked = Asked(tokens, None, counts, Matches.of(tokens), frozenset(), MEMORY)

    def look(layer: Layer) -> Tensor:
        z, found = induction_of(layer, asked)
        sums.add(layer.index, {"induction": found}, None)
        return z

    observe(model, tokens, look, hooks=hooks)


def room_of(model: Model) -> Room:
    """What the model can be shown."""
    check_model(model)
    config = model.config
    return Room(config.n_ctx, config.d_vocab, config.bos_token)


def seeded(generator: torch.Generator | None) -> torch.Generator:
    """The generator, or one with a fixed seed: a probe gives the same answer each time."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    if not isinstance(generator, torch.Generator):
        got = type(generator).__name__
        raise TypeError(f"generator is a torch.Generator, or None for a fixed seed; got {got}")
    return generator


@dataclass(frozen=True)
class InductionEvidence(Result):
    """What the verdict on each head rests on.

    Attributes:
        score: Attention to what followed earlier occurrences, at each period.
        control: Attention of the same rows by the same distances, in sequences whose period is
            another, so that what stands there is no target (and targets are elsewhere).
        low: Lower end of the 95 % interval of score − control, over sequences.
        copying: Whether the head raises the logit of what it attends to: 1 above all other tokens
            of the sequence, −1 below.
        copying_low: Lower end of its 95 % interval.
        copying_high: Upper end.
        periods: Lengths of the repeated block.
        control_periods: Those of the controls.
        margin: What `low` must reach at every period.
        n_sequences: Sequences a period, and as many controls.
    """

    axes: ClassVar = {
        "score": ("layer", "head", "period"),
        "control": ("layer", "head", "period"),
        "low": ("layer", "head", "period"),
        "copying": ("layer", "head"),
        "copying_low": ("layer", "head"),
        "copying_high": ("layer", "head"),
    }
    coordinates: ClassVar = {"period": "periods"}
    score: Float[Tensor, "layer head period"]
    control: Float[Tensor, "layer head period"]
    low: Float[Tensor, "layer head period"]
    copying: Float[Tensor, "layer head"]
    copying_low: Float[Tensor, "layer head"]
    copying_high: Float[Tensor, "layer head"]
    periods: tuple[int, ...]
    control_periods: tuple[int, ...]
    margin: float
    n_sequences: int

    def matching(self) -> list[tuple[int, int]]:
        """Heads that attend as induction does, at every period; strongest first."""
        return self._ranked((self.low >= self.margin).all(-1))

    def positional(self) -> list[tuple[int, int]]:
        """Heads with the score at some period, whose control has it too: they look back by it."""
        passes = (self.score >= self.margin) & (self.control >= self.margin)
        return self._ranked(passes.any(-1) & ~(self.low >= self.margin).all(-1))

    def _ranked(self, chosen: Tensor) -> list[tuple[int, int]]:
        strength = self.score.mean(-1)
        heads = [(int(layer), int(head)) for layer, head in chosen.nonzero().tolist()]
        return sorted(heads, key=lambda at: -float(strength[at]))


class InductionHeads(list[tuple[int, int]]):
    """The induction heads (layer, head), strongest first, and what else was found on the way.

    Attributes:
        evidence: Scores, controls and copying of all heads.
        anti: Heads that attend likewise, and lower the logit of what they attend to.
        silent: Heads that attend likewise, and do neither.
        positional: Heads that look back by a fixed distance which happens to fit.
    """

    def __init__(self, evidence: InductionEvidence) -> None:
        self.evidence = evidence
        matching = evidence.matching()
        copies = [at for at in matching if evidence.copying_low[at] > 0]
        self.anti = [at for at in matching if evidence.copying_high[at] < 0]
        self.silent = [at for at in matching if at not in copies and at not in self.anti]
        self.positional = evidence.positional()
        super().__init__(copies)

    def frame(self) -> Any:
        """A table of the evidence: one row for each head and period."""
        return self.evidence.frame()

    def _repr_html_(self) -> str:
        return f"<b>Induction heads: {list(self)}</b>{self.evidence._repr_html_()}"


def find_induction_heads(
    model: Model,
    *,
    generator: torch.Generator | None = None,
    periods: Sequence[int] | None = None,
    margin: float = 0.4,
    n_sequences: int = 16,
    hooks: Hooks = (),
    progress: Progress | None = None,
) -> InductionHeads:
    """The heads that do induction: by content, at every period, and to say what follows.

    A head is one if, at each period, the interval of its score less its control lies above
    `margin`, and that of its copying above 0. A head that looks a fixed distance back has its
    score on the control too; one that lowers the logit of what it attends to is in `.anti`. The
    list of (layer, head), strongest first, holds the evidence.

    Args:
        model: A `Transformer`, or a wrapped model.
        generator: Draws the sequences. None: a fixed seed.
        periods: Lengths of the blocks, best some that training did not have. None: three that fit.
        margin: What the score must exceed its control by.
        n_sequences: Sequences a period, and as many controls; 2 or more.
        hooks: Interventions to run the model under.
        progress: Called with how many periods are done, out of how many.

    Raises:
        TypeError: There is no model to run.
        ValueError: A period is shorter than 3 or does not fit; there is one sequence, or too
            small a vocabulary for a control; the margin can't be reached, or always is.
    """
    if not isinstance(n_sequences, int) or n_sequences < 2:
        raise ValueError(f"an interval needs 2 sequences or more, got {n_sequences!r}")
    if not isinstance(margin, int | float) or not 0 <= margin < 1:
        raise ValueError(
            f"margin is what a score must exceed its control by, in [0, 1); got {margin!r}"
        )
    room = room_of(model)
    room.check_controls()
    periods = room.default_periods() if periods is None else room.checked(periods)
    how = {"n": n_sequences, "length": room.length(periods), "generator": seeded(generator)}
    trials = [Trial.drawn(room, period, **how) for period in periods]
    outcomes = [run_trial(model, trial, hooks=hooks) for trial in counted(trials, progress)]
    return InductionHeads(_evidence(trials, outcomes, margin))


def _evidence(
    trials: Sequence[Trial], outcomes: Sequence[Outcome], margin: float
) -> InductionEvidence:
    """Means over sequences, and intervals from how much they differ."""
    lows = [_interval(o.score - o.control)[0] for o in outcomes]
    copied = torch.cat([o.copying for o in outcomes], -1)
    low, high = _interval(copied)
    return InductionEvidence(
        score=torch.stack([o.score.mean(-1) for o in outcomes], -1),
        control=torch.stack([o.control.mean(-1) for o in outcomes], -1),
        low=torch.stack(lows, -1),
        copying=copied.mean(-1),
        copying_low=low,
        copying_high=high,
        periods=tuple(t.period for t in trials),
        control_periods=tuple(t.control_period for t in trials),
        margin=margin,
        n_sequences=len(trials[0].tokens),
    )


def _interval(x: Float[Tensor, "layer head example"]) -> tuple[Tensor, Tensor]:
    half = QUANTILE * x.std(-1) / x.shape[-1] ** 0.5
    return x.mean(-1) - half, x.mean(-1) + half
