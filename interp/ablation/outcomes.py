"""What ablations found: effects per example, their means, how sure they are."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.metrics import weighted_mean
from interp.results import Result
from interp.sweeps import Interval, Sampled, bootstrap_interval, holm, permutation_p_values


@dataclass(frozen=True)
class _Swept(Sampled, Result):
    """Effects are ablated minus clean: a positive Δloss means that it was helping."""

    effect: Tensor
    clean: Float[Tensor, ""]
    per_example: Tensor
    clean_per_example: Float[Tensor, " example"]
    weights: Int[Tensor, " example"]
    kind: str
    site: str
    metric: str
    given: tuple[str, ...] = ()

    def p_values(
        self,
        *,
        corrected: bool = True,
        draws: int = 2000,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The p of each effect by a paired permutation test, Holm-corrected for their number.

        The smallest there can be is n / (draws + 1) for n effects, so take more draws for more.
        """
        p = permutation_p_values(self.per_example, self.weights, draws=draws, generator=generator)
        return _holm_of_known(p) if corrected else p


def _holm_of_known(p: Tensor) -> Tensor:
    known = ~p.isnan()
    corrected = p.clone()
    corrected[known] = holm(p[known])
    return corrected


@dataclass(frozen=True)
class HeadSweep(_Swept):
    """What each head's absence changes.

    Attributes:
        effect: Ablated minus clean, over scored targets; NaN for heads that were not asked for.
        clean: The metric as it is.
        per_example: The same for each example.
        clean_per_example: As it is, for each example.
        weights: Scored targets of each example.
        kind: What a cut head gives.
        site: What was cut.
        metric: What was measured.
        given: Heads that were cut in the clean run already.
    """

    axes: ClassVar = {
        "effect": ("layer", "head"),
        "clean": (),
        "per_example": ("layer", "head", "example"),
        "clean_per_example": ("example",),
        "weights": ("example",),
    }


@dataclass(frozen=True)
class LayerSweep(_Swept):
    """What the absence of each layer's attention, MLP or residual stream changes.

    Attributes are those of `HeadSweep`, without the axis of heads.
    """

    axes: ClassVar = {
        "effect": ("layer",),
        "clean": (),
        "per_example": ("layer", "example"),
        "clean_per_example": ("example",),
        "weights": ("example",),
    }


@dataclass(frozen=True)
class Group(Result):
    """What the absence of a set of heads changes, together and apart.

    Heads back each other up, so no single cut tells what a set does. Effects are ablated minus
    clean.

    Attributes:
        together: All cut at once.
        each: Each cut alone.
        cumulative: The first ones cut, up to each, in the order given.
        kept_alone: All cut but this one.
        random: As many heads cut, drawn from the whole model: a baseline.
        clean: The metric as it is.
        together_per_example: For each example; likewise the others.
        weights: Scored targets of each example.
        heads: Names of the heads.
        random_heads: Names of those that were drawn.
        kind: What a cut head gives.
        metric: What was measured.
    """

    axes: ClassVar = {
        "each": ("head",),
        "cumulative": ("head",),
        "kept_alone": ("head",),
        "together": (),
        "clean": (),
        "random": ("draw",),
        "each_per_example": ("head", "example"),
        "cumulative_per_example": ("head", "example"),
        "kept_alone_per_example": ("head", "example"),
        "together_per_example": ("example",),
        "random_per_example": ("draw", "example"),
        "weights": ("example",),
    }
    coordinates: ClassVar = {"head": "heads"}

    each: Float[Tensor, " head"]
    cumulative: Float[Tensor, " head"]
    kept_alone: Float[Tensor, " head"]
    together: Float[Tensor, ""]
    clean: Float[Tensor, ""]
    random: Float[Tensor, " draw"] | None
    each_per_example: Float[Tensor, "head example"]
    cumulative_per_example: Float[Tensor, "head example"]
    kept_alone_per_example: Float[Tensor, "head example"]
    together_per_example: Float[Tensor, " example"]
    random_per_example: Float[Tensor, "draw example"] | None
    weights: Int[Tensor, " example"]
    heads: tuple[str, ...]
    random_heads: tuple[str, ...]
    kind: str
    metric: str

    def interval(
        self,
        which: str = "together",
        level: float = 0.95,
        *,
        draws: int = 2000,
        generator: torch.Generator | None = None,
    ) -> Interval:
        """Both ends of the bootstrap interval of `together`, `each`, `cumulative`, `kept_alone`.

        Raises:
            ValueError: There is no such effect, or it was not asked for.
        """
        kinds = ("together", "each", "cumulative", "kept_alone", "random")
        values = getattr(self, f"{which}_per_example") if which in kinds else None
        if values is None:
            raise ValueError(f"there are intervals of {', '.join(kinds)}; got {which!r}")
        return bootstrap_interval(
            values, self.weights, level=level, draws=draws, generator=generator
        )


@dataclass(frozen=True)
class Pairwise(Result):
    """What the absence of each pair of heads changes.

    Attributes:
        joint: Both cut, minus clean; on the diagonal, the head alone.
        interaction: `joint` minus the effects of both alone; NaN on the diagonal. For a loss,
            positive: they back each other up; negative: each needs the other (one circuit).
        effect: Each head alone.
        clean: The metric as it is.
        interaction_per_example: For each example.
        weights: Scored targets of each example.
        kind: What a cut head gives.
        metric: What was measured.
    """

    axes: ClassVar = {
        "joint": ("layer", "head", "other_layer", "other_head"),
        "interaction": ("layer", "head", "other_layer", "other_head"),
        "effect": ("layer", "head"),
        "clean": (),
        "interaction_per_example": ("layer", "head", "other_layer", "other_head", "example"),
        "weights": ("example",),
    }

    joint: Float[Tensor, "layer head other_layer other_head"]
    interaction: Float[Tensor, "layer head other_layer other_head"]
    effect: Float[Tensor, "layer head"]
    clean: Float[Tensor, ""]
    interaction_per_example: Float[Tensor, "layer head other_layer other_head example"]
    weights: Int[Tensor, " example"]
    kind: str
    metric: str

    def interval(
        self, level: float = 0.95, *, draws: int = 2000, generator: torch.Generator | None = None
    ) -> Interval:
        """Both ends of each interaction's bootstrap interval over examples."""
        return bootstrap_interval(
            self.interaction_per_example,
            self.weights,
            level=level,
            draws=draws,
            generator=generator,
        )

    def strongest(self, n: int = 10) -> list[tuple[tuple[int, int], tuple[int, int], float]]:
        """The pairs whose interaction is largest in size, with it."""
        layers, heads = self.effect.shape
        flat = self.interaction.reshape(layers * heads, -1)
        rows, columns = torch.triu_indices(*flat.shape, offset=1).unbind()
        values = flat[rows.to(flat.device), columns.to(flat.device)]
        order = values.abs().nan_to_num(-1.0).argsort(descending=True)
        found = []
        for i in order[: min(n, int((~values.isnan()).sum()))].tolist():
            pair = (divmod(int(rows[i]), heads), divmod(int(columns[i]), heads))
            found.append((*pair, float(values[i])))
        return found


def swept(
    per_example: Tensor, clean: Float[Tensor, "B"], weights: Int[Tensor, "B"], **about: Any
) -> dict[str, Any]:
    """The fields of a sweep's result."""
    return {
        "effect": weighted_mean(per_example, weights),
        "clean": weighted_mean(clean, weights),
        "per_example": per_example,
        "clean_per_example": clean,
        "weights": weights,
        **about,
    }


def head_name(head: tuple[int, int | None]) -> str:
    """`L1H0`; `L1` where there is no head."""
    layer, number = head
    return f"L{layer}" if number is None else f"L{layer}H{number}"
