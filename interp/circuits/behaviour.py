"""What a group of induction heads does, and which earlier heads it depends on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation.groups import sets_together
from interp.circuits.paths import Head, without
from interp.hooks import Hooks
from interp.metrics import next_token_targets
from interp.model import Transformer
from interp.probes import induction_scores
from interp.probes.induction import room_of
from interp.tasks import Batch

MOST = 12  # heads that a set is looked for among, those that cost most alone
NEEDED = 0.5  # of the score must go with all earlier heads, or the group needs none of them


@dataclass(frozen=True)
class Behaviour:
    """Scores and losses on the same sequences each time.

    Attributes:
        model: The model.
        periods: Lengths of the repeated blocks; None: the default ones.
        n_sequences: Sequences a period.
        seed: Of these sequences.
        known: Scores that were worked out, by the heads that were cut.
    """

    model: Transformer
    periods: Sequence[int] | None
    n_sequences: int
    seed: int
    known: dict[frozenset[Head], Tensor] = field(default_factory=dict, repr=False)

    @property
    def generator(self) -> torch.Generator:
        """A fresh one of the same seed."""
        return torch.Generator().manual_seed(self.seed)

    def scores(self, hooks: Hooks = ()) -> Float[Tensor, "layer head"]:
        """Every head's induction score."""
        return induction_scores(
            self.model,
            periods=self.periods,
            n_sequences=self.n_sequences,
            generator=self.generator,
            hooks=hooks,
        )

    def scores_without(self, cut: list[Head]) -> Float[Tensor, "layer head"]:
        """Every head's induction score with some cut; each set of heads is cut once."""
        which = frozenset(cut)
        if which not in self.known:
            self.known[which] = self.scores(without(cut))
        return self.known[which]

    def group_score(self, heads: list[Head], cut: list[Head]) -> float:
        """The mean score of some heads with others cut."""
        scores = self.scores_without(cut)
        return sum(scores[head].item() for head in heads) / len(heads)

    def losses(self, sources: list[Head], targets: list[Head]) -> dict[str, Any]:
        """Ablated minus clean, on the tokens that have an earlier occurrence."""
        batch = self._repeats()
        cuts = {
            "zero": {"loss_without_previous": sources, "loss_without_induction": targets},
            "pattern_preserving": {"loss_without_previous_kept_patterns": sources},
        }
        found = {name: float("nan") for named in cuts.values() for name in named}
        for kind, named in cuts.items():
            asked = {name: heads for name, heads in named.items() if heads}
            if asked:
                effects = sets_together(self.model, batch, list(asked.values()), kind=kind)
                found |= zip(asked, effects.tolist(), strict=True)
        return found

    def _repeats(self) -> Batch:
        room = room_of(self.model)
        periods = room.default_periods() if self.periods is None else room.checked(self.periods)
        period = sorted(periods)[len(periods) // 2]
        length, n = room.length(periods), self.n_sequences
        tokens = room.repeated(period, n=n, length=length, generator=self.generator)
        targets = next_token_targets(tokens)
        targets[:, : room.start + period] = -100  # nothing was seen before
        batch = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)
        return batch.to(self.model.W_E.device)


@dataclass(frozen=True)
class Earlier:
    """The earlier heads that a group depends on.

    Attributes:
        candidates: All heads below the group's last layer that are not in it.
        drops: What the group's score loses when each is cut alone.
        chosen: The set, the one that costs most alone first; empty if the group needs none.
    """

    candidates: list[Head]
    drops: list[float]
    chosen: list[Head]


def earlier_heads(behaviour: Behaviour, targets: list[Head], *, share: float) -> Earlier:
    """Cut the earlier heads one after the other, each time the one that costs most by then.

    Not in the order of what each costs alone: heads that share the work, and could stand in for
    each other, are told by what is lost once the others are gone. The set is complete when it takes
    `share` of what cutting all earlier heads takes off the group's score; then heads without which
    it does so too are left out. Not by their own previous-token score either: a head may look one
    token back only in some places.
    """
    last = max((layer for layer, _ in targets), default=0)
    every = [(n, h) for n in range(last) for h in range(behaviour.model.config.n_heads)]
    candidates = [head for head in every if head not in targets]
    if not targets or not candidates:
        return Earlier([], [], [])

    def score(cut: list[Head]) -> float:
        return behaviour.group_score(targets, cut)

    clean, floor = score([]), score(candidates)
    drops = [clean - score([head]) for head in candidates]
    if floor > NEEDED * clean:
        return Earlier(candidates, drops, [])
    order = [head for _, head in sorted(zip(drops, candidates, strict=True), reverse=True)]
    return Earlier(candidates, drops, _set(score, order, clean - share * (clean - floor)))


def _set(score: Callable[[list[Head]], float], order: list[Head], enough: float) -> list[Head]:
    """A small set without which the score is low enough, or all that are tried if there is none."""
    rest, chosen = order[:MOST], order[:1]
    left = score(chosen)
    while left > enough and len(chosen) < len(rest):
        tried = [[*chosen, head] for head in rest if head not in chosen]
        left, chosen = min((score(those), those) for those in tried)
    for head in reversed(chosen[:-1]):
        fewer = [other for other in chosen if other != head]
        if score(fewer) <= enough:
            chosen = fewer
    return [head for head in order if head in chosen]
