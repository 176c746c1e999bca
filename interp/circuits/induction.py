"""The induction circuit: which heads, which edges, and the evidence for each.

Behaviour comes first: heads are found by what they do, the earlier set by what the score loses
without it, edges by cutting them alone. Weights are shown beside it: a working pair whose
K-composition is below random exists.

Source: Elhage et al. 2021 for the circuit; Olsson et al. 2022 for its tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation import group
from interp.circuits.paths import Head, token_match, without, without_edge
from interp.circuits.weights import composition_percentiles, composition_scores
from interp.hooks import Hooks
from interp.metrics import next_token_targets
from interp.model import Transformer
from interp.probes import InductionHeads, find_induction_heads, induction_scores
from interp.probes.induction import room_of, seeded
from interp.results import Result
from interp.tasks import Batch


@dataclass(frozen=True, eq=False, repr=False)
class InductionCircuit(Result):
    """Previous-token heads, the induction heads that read them, and the edges between.

    Attributes:
        score_drop: What the target's induction score loses when the edge is cut through K alone.
        score_drop_q: The same through Q: near 0 in this circuit.
        composition: K-composition of the edge; random matrices give 1/√d_model.
        percentile: Its place among random rotations, 0 to 1.
        token_match: See `token_match`: 1 if the composed circuit looks for the query's own token.
        token_match_without: The same without the source.
        sources: The edges' first heads, the previous-token set, strongest first.
        targets: The edges' second heads, the induction heads, strongest first.
        candidates_drop: What the group's score loses when each earlier head is cut alone.
        candidates: Those heads.
        score: The group's induction score.
        score_without: The same with the previous-token set cut.
        loss_without_previous: Loss on the repeats without the set, ablated minus clean, nats.
        loss_without_previous_kept_patterns: The same, all patterns held at the clean run's.
        loss_without_induction: The same without the induction heads.
        anti: Heads that attend likewise, and lower what they attend to.
    """

    axes: ClassVar = {
        **dict.fromkeys(
            ("score_drop", "score_drop_q", "composition", "percentile", "token_match",
             "token_match_without"),
            ("source", "target"),
        ),
        "candidates_drop": ("candidate",),
    }  # fmt: skip
    coordinates: ClassVar = {"source": "sources", "target": "targets", "candidate": "candidates"}

    score_drop: Float[Tensor, "source target"]
    score_drop_q: Float[Tensor, "source target"]
    composition: Float[Tensor, "source target"]
    percentile: Float[Tensor, "source target"]
    token_match: Float[Tensor, "source target"]
    token_match_without: Float[Tensor, "source target"]
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    candidates_drop: Float[Tensor, " candidate"]
    candidates: tuple[str, ...]
    score: float
    score_without: float
    loss_without_previous: float
    loss_without_previous_kept_patterns: float
    loss_without_induction: float
    anti: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The circuit in a sentence, or that there is none."""
        if not self.targets:
            return "No head does induction here."
        does = "does" if len(self.targets) == 1 else "do"
        group_of = f"{_listed(self.targets)} {does} induction ({self.score:.2f})"
        if not self.sources:
            return f"{group_of}; no earlier heads were found that they depend on."
        return (
            f"{group_of}, on what {_listed(self.sources)} wrote into the keys: without, the "
            f"score is {self.score_without:.2f}, the loss on repeats "
            f"{self.loss_without_previous:+.2f} nats "
            f"({self.loss_without_previous_kept_patterns:+.2f} if patterns are held)."
        )


def induction_circuit(
    model: Transformer,
    *,
    periods: Sequence[int] | None = None,
    n_sequences: int = 16,
    share: float = 0.5,
    found: InductionHeads | None = None,
    generator: torch.Generator | None = None,
) -> InductionCircuit:
    """Find the induction heads, the earlier set they depend on, and the edges between them.

    Args:
        model: A `Transformer`; edges and weights can't be had of a wrapped model.
        periods: Lengths of the repeated blocks, best some that training did not have.
        n_sequences: Sequences a period.
        share: The previous-token set is the smallest found without which the group's score falls
            under this share of what it was; no set if none does.
        found: What `find_induction_heads` gave, if it was run already.
        generator: Draws the sequences. None: a fixed seed.

    Raises:
        TypeError: The model is wrapped.
        ValueError: See `find_induction_heads`.
    """
    if not isinstance(model, Transformer):
        raise TypeError(
            f"wanted a Transformer, whose edges can be cut; got {type(model).__name__}: load it "
            "with interp.load_hugging_face, or use probes.find_induction_heads"
        )
    seed = int(torch.randint(2**31, (), generator=seeded(generator)))
    measure = _Measure(model, periods, n_sequences, seed)
    if found is None:
        found = find_induction_heads(
            model, periods=periods, n_sequences=n_sequences, generator=measure.generator
        )
    targets = list(found)
    candidates = [
        (layer, head)
        for layer in range(max((layer for layer, _ in targets), default=0))
        for head in range(model.config.n_heads)
    ]
    score = measure.group_score(targets) if targets else float("nan")
    drops = [score - measure.group_score(targets, without([head])) for head in candidates]
    sources = _smallest_set(measure, targets, candidates, drops, share * score)
    edges = _edges(model, measure, sources, targets)
    return InductionCircuit(
        **edges,
        sources=tuple(map(_name, sources)),
        targets=tuple(map(_name, targets)),
        candidates_drop=torch.tensor(drops),
        candidates=tuple(map(_name, candidates)),
        score=score,
        score_without=measure.group_score(targets, without(sources)) if targets else score,
        **measure.losses(sources, targets),
        anti=tuple(map(_name, found.anti)),
    )


@dataclass(frozen=True)
class _Measure:
    """Scores and losses on the same sequences each time."""

    model: Transformer
    periods: Sequence[int] | None
    n_sequences: int
    seed: int

    @property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def scores(self, hooks: Hooks = ()) -> Float[Tensor, "layer head"]:
        return induction_scores(
            self.model,
            periods=self.periods,
            n_sequences=self.n_sequences,
            generator=self.generator,
            hooks=hooks,
        )

    def group_score(self, heads: list[Head], hooks: Hooks = ()) -> float:
        scores = self.scores(hooks)
        return sum(scores[head].item() for head in heads) / len(heads)

    def losses(self, sources: list[Head], targets: list[Head]) -> dict[str, Any]:
        """Ablated minus clean, on the tokens that have an earlier occurrence."""
        batch = self._repeats()
        cuts = {
            "loss_without_previous": (sources, "zero"),
            "loss_without_previous_kept_patterns": (sources, "pattern_preserving"),
            "loss_without_induction": (targets, "zero"),
        }
        return {
            name: float(group(self.model, batch, heads=heads, kind=kind).together)
            if heads
            else float("nan")
            for name, (heads, kind) in cuts.items()
        }

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


def _smallest_set(
    measure: _Measure,
    targets: list[Head],
    candidates: list[Head],
    drops: list[float],
    enough: float,
) -> list[Head]:
    """Add heads by what each costs alone until the score is low; then leave out the idle ones."""
    if not targets:
        return []
    order = [head for _, head in sorted(zip(drops, candidates, strict=True), reverse=True)]
    chosen: list[Head] = []
    for head in order:
        chosen.append(head)
        if measure.group_score(targets, without(chosen)) < enough:
            break
    else:
        return []
    for head in reversed(chosen[:-1]):
        rest = [other for other in chosen if other != head]
        if measure.group_score(targets, without(rest)) < enough:
            chosen = rest
    return chosen


def _edges(
    model: Transformer, measure: _Measure, sources: list[Head], targets: list[Head]
) -> dict[str, Any]:
    names = ("score_drop", "score_drop_q", "composition", "percentile", "token_match",
             "token_match_without")  # fmt: skip
    edges = {name: torch.full((len(sources), len(targets)), torch.nan) for name in names}
    if not sources:
        return edges
    clean = measure.scores()
    composition = composition_scores(model, "K")
    percentile = composition_percentiles(model, "K", generator=measure.generator)
    for i, source in enumerate(sources):
        for j, target in enumerate(targets):
            if source[0] >= target[0]:
                continue
            edges["composition"][i, j] = composition[(*source, *target)]
            edges["percentile"][i, j] = percentile[(*source, *target)]
            matched, alone = token_match(model, source, target)
            edges["token_match"][i, j], edges["token_match_without"][i, j] = matched, alone
            for name, through in (("score_drop", "k"), ("score_drop_q", "q")):
                cut = measure.scores(without_edge(model, source, target, through))
                edges[name][i, j] = clean[target] - cut[target]
    return edges


def _name(head: Head) -> str:
    return f"L{head[0]}H{head[1]}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
