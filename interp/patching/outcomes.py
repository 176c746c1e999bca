"""What patching found."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.metrics import weighted_mean
from interp.results import Result
from interp.sweeps import Sampled


@dataclass(frozen=True)
class _Patched(Sampled, Result):
    """Effects are patched minus base: what carrying one activation over changes."""

    effect: Tensor
    base: Float[Tensor, ""]
    source: Float[Tensor, ""]
    per_example: Tensor
    base_per_example: Float[Tensor, " example"]
    source_per_example: Float[Tensor, " example"]
    weights: Int[Tensor, " example"]
    method: str
    direction: str
    site: str
    metric: str

    @property
    def recovery(self) -> Tensor:
        """Effects as a share of the way from the base to the source: 1 is all of it.

        Raises:
            ValueError: Both ends are equal, so that there is no way to be shared.
        """
        if not differ(self.source, self.base):
            raise ValueError(
                f"{self.metric} is {float(self.base):.6g} at both ends: there is nothing to "
                "recover; take corrupted tokens that change it, or read `effect`"
            )
        return self.effect / (self.source - self.base)


_SHARED: dict[str, tuple[str, ...]] = {
    "base": (),
    "source": (),
    "base_per_example": ("example",),
    "source_per_example": ("example",),
    "weights": ("example",),
}


@dataclass(frozen=True)
class HeadPatching(_Patched):
    """What carrying over each head changes.

    Attributes:
        effect: Patched minus base; NaN where nothing was asked.
        base: The metric of the run that is patched.
        source: That of the run that patches come from.
        per_example: Effects of each example.
        base_per_example: The base's metric for each.
        source_per_example: The source's.
        weights: Scored targets of each example.
        method: "patching", or a first-order estimate: "attribution".
        direction: Which end is patched.
        site: What is carried over.
        metric: What was measured.
    """

    axes: ClassVar = {
        "effect": ("layer", "head"),
        "per_example": ("layer", "head", "example"),
    } | _SHARED


@dataclass(frozen=True)
class PositionPatching(_Patched):
    """What carrying over each position of each layer changes; attributes as of `HeadPatching`."""

    axes: ClassVar = {
        "effect": ("layer", "position"),
        "per_example": ("layer", "position", "example"),
    } | _SHARED


def patched(
    per_example: Float[Tensor, "layer column B"],
    ends: tuple[Float[Tensor, "B"], Float[Tensor, "B"]],
    weights: Int[Tensor, "B"],
    *,
    by: str,
    **about: Any,
) -> HeadPatching | PositionPatching:
    """The result of effects in this shape; `ends` are the metric of base and source."""
    kind = HeadPatching if by == "head" else PositionPatching
    base, source = ends
    return kind(
        effect=weighted_mean(per_example, weights),
        base=weighted_mean(base, weights),
        source=weighted_mean(source, weights),
        per_example=per_example,
        base_per_example=base,
        source_per_example=source,
        weights=weights,
        **about,
    )


def differ(a: Float[Tensor, ""], b: Float[Tensor, ""]) -> bool:
    """Whether two numbers are further apart than rounding."""
    return bool((a - b).abs() > 1e-6 * torch.maximum(a.abs(), b.abs()))
