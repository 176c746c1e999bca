"""The induction circuit: which heads, which edges, and the evidence for each.

Behaviour comes first: heads are found by what they do, the earlier set by what the score loses
without it, edges by cutting them alone. Weights are shown beside it: a working pair whose
K-composition is below random exists.

Source: Elhage et al. 2021 for the circuit; Olsson et al. 2022 for its tests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.ablation.outcomes import head_name
from interp.circuits.behaviour import Behaviour, earlier_heads
from interp.circuits.paths import Head, token_match_of, without_edges
from interp.circuits.weights import composition_of_pairs, readable
from interp.model import Transformer
from interp.probes import InductionHeads, find_induction_heads
from interp.probes.induction import seeded
from interp.results import Result


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
    def source_heads(self) -> list[Head]:
        """The previous-token set as pairs (layer, head)."""
        return [_head(name) for name in self.sources]

    def evidence(self, source: int, target: int) -> str:
        """What speaks for the edge of these indices, in words."""
        at = source, target
        return (
            f"cut alone, the induction score falls by {float(self.score_drop[at]):.2f} (through "
            f"queries {float(self.score_drop_q[at]):.2f}); K-composition "
            f"{float(self.composition[at]):.2f}, above {float(self.percentile[at]):.0%} of random; "
            f"finds its own token for {float(self.token_match[at]):.0%} of tokens, without the "
            f"source for {float(self.token_match_without[at]):.0%}"
        )

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
    share: float = 0.9,
    found: InductionHeads | None = None,
    generator: torch.Generator | None = None,
) -> InductionCircuit:
    """Find the induction heads, the earlier set they depend on, and the edges between them.

    Args:
        model: A `Transformer`; edges and weights can't be had of a wrapped model.
        periods: Lengths of the repeated blocks, best some that training did not have.
        n_sequences: Sequences a period.
        share: The previous-token set is grown until cutting it takes this share of what cutting
            all earlier heads takes off the group's score; no set if these take less than half.
        found: What `find_induction_heads` gave, if it was run already.
        generator: Draws the sequences. None: a fixed seed.

    Raises:
        TypeError: The model is wrapped; `found` is not what `find_induction_heads` gave.
        ValueError: `share` is not above 0 and up to 1; see `find_induction_heads`.
    """
    if not isinstance(model, Transformer):
        raise TypeError(
            f"wanted a Transformer, whose edges can be cut; got {type(model).__name__}: load it "
            "with interp.load_hugging_face, or use probes.find_induction_heads"
        )
    check_asked(share, found)
    seed = int(torch.randint(2**31, (), generator=seeded(generator)))
    behaviour = Behaviour(model, periods, n_sequences, seed)
    if found is None:
        found = find_induction_heads(
            model, periods=periods, n_sequences=n_sequences, generator=behaviour.generator
        )
    targets = list(found)
    earlier = earlier_heads(behaviour, targets, share=share)
    sources = earlier.chosen
    score = behaviour.group_score(targets, []) if targets else float("nan")
    return InductionCircuit(
        **_edges(behaviour, sources, targets),
        sources=tuple(map(head_name, sources)),
        targets=tuple(map(head_name, targets)),
        candidates_drop=torch.tensor(earlier.drops),
        candidates=tuple(map(head_name, earlier.candidates)),
        score=score,
        score_without=behaviour.group_score(targets, sources) if targets else score,
        **behaviour.losses(sources, targets),
        anti=tuple(map(head_name, found.anti)),
    )


def check_asked(share: object, found: object) -> None:
    """Refuse a share that no set takes, and heads that come without their evidence."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"share lies above 0 and up to 1, got {share!r}")
    if found is not None and not isinstance(found, InductionHeads):
        raise TypeError(
            "found is what probes.find_induction_heads(model) gave, with its evidence; got "
            f"{found!r}"
        )


def _edges(behaviour: Behaviour, sources: list[Head], targets: list[Head]) -> dict[str, Tensor]:
    """The evidence on each edge [source target], NaN where the target is not in a later layer."""
    names = ("score_drop", "score_drop_q", "composition", "percentile", "token_match",
             "token_match_without")  # fmt: skip
    edges = {name: torch.full((len(sources), len(targets)), torch.nan) for name in names}
    if not sources:
        return edges
    folded, clean = readable(behaviour.model), behaviour.scores_without([])
    weights = composition_of_pairs(
        folded, "K", sources=sources, targets=targets, generator=behaviour.generator
    )
    for i, source in enumerate(sources):
        above = [(j, target) for j, target in enumerate(targets) if target[0] > source[0]]
        for name, through in (("score_drop", "k"), ("score_drop_q", "q")):
            for j, lost in _lost(behaviour, source, above, through, clean):
                edges[name][i, j] = lost
        for j, target in above:
            edges["composition"][i, j], edges["percentile"][i, j] = (w[i, j] for w in weights)
            matched, alone = token_match_of(folded, source, target)
            edges["token_match"][i, j], edges["token_match_without"][i, j] = matched, alone
    return edges


def _lost(
    behaviour: Behaviour, source: Head, targets: list[tuple[int, Head]], through: str, clean: Tensor
) -> Iterator[tuple[int, float]]:
    """What each target's score loses without its edge; those of one layer don't see each other."""
    for layer in sorted({target[0] for _, target in targets}):
        those = [(j, target) for j, target in targets if target[0] == layer]
        cut = without_edges(behaviour.model, source, [target for _, target in those], through)
        scores = behaviour.scores(cut)
        yield from ((j, float(clean[target] - scores[target])) for j, target in those)


def _head(name: str) -> Head:
    layer, head = name[1:].split("H")
    return int(layer), int(head)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
