"""Performer: random features φ with E[φ(q)·φ(k)] = exp(scale · q·k), FAVOR+.

With x = √scale · q and y = √scale · k, positive features err most where the kernel is large, and
trigonometric ones where it is small, which is where a normaliser can't bear it:

    MSE(positive)      = exp(‖x+y‖²) SM² (1 − exp(−‖x+y‖²)) / m,       SM = exp(x·y)
    MSE(trigonometric) = exp(‖x+y‖²) SM⁻² (1 − exp(−‖x−y‖²))² / (2m)

Source: Choromanski et al. 2021, "Rethinking Attention with Performers". Their code subtracts the
largest exponent of all keys, and adds 1e-4 to features, which biases them; here keys are shifted by
a constant that depends on no key, and nothing is added.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.features import Featured
from interp.attention.window import check_count

Kind = Literal["positive", "trigonometric"]


@dataclass(frozen=True)
class Performer(Featured):
    """Softmax attention estimated with random features.

    Attributes:
        features: How many random directions.
        kind: "positive" features exp(w·x − ‖x‖²/2), or "trigonometric" ones, whose weights may be
            negative.
        orthogonal: Directions are orthogonal in groups of d_head, which lowers the error.
        seed: Of the draw.
    """

    features: int = 128
    kind: Kind = "positive"
    orthogonal: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("features", self.features)
        check_count("seed", self.seed)
        if self.features < 1:
            raise ValueError(f"features must be at least 1, got {self.features}")
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {self.kind!r}")

    @property
    def positive(self) -> bool:
        """Whether weights are never negative."""
        return self.kind == "positive"

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        """φ(q), each query's largest exponent made 0."""
        x, w = q * scale**0.5, self._directions(q)
        if not self.positive:
            return _waves(x, w)  # exp(‖x‖²/2) is one factor a query: the normaliser cancels it
        exponent = x @ w.mT
        return (exponent - exponent.detach().amax(-1, keepdim=True)).exp()

    def of_keys(self, k: Tensor, scale: float) -> Tensor:
        """φ(k), times a constant that keeps the largest possible feature in range."""
        y, w = k * scale**0.5, self._directions(k)
        if not self.positive:
            return trigonometric_features(y, w)
        # w·y − ‖y‖²/2 is at most ‖w‖²/2, whatever the key.
        above = (w.square().sum(-1).amax() / 2 - 60).clamp(min=0)
        return (_exponent(y, w) - above).exp()

    def _directions(self, x: Tensor) -> Float[Tensor, "feature d_head"]:
        return _kept(self.features, x.shape[-1], self.orthogonal, self.seed).to(x)


def positive_features(
    x: Float[Tensor, "*batch d"], w: Float[Tensor, "*draw m d"]
) -> Float[Tensor, "*batch m"]:
    """exp(w·x − ‖x‖²/2) / √m: products have the mean exp(x·y), and are never negative."""
    return _exponent(x, w).exp() * w.shape[-2] ** -0.5


def trigonometric_features(
    x: Float[Tensor, "*batch d"], w: Float[Tensor, "*draw m d"]
) -> Float[Tensor, "*batch two_m"]:
    """exp(‖x‖²/2) [cos(w·x), sin(w·x)] / √m: products have the mean exp(x·y)."""
    return (x.square().sum(-1, keepdim=True) / 2).exp() * _waves(x, w)


def _waves(x: Tensor, w: Tensor) -> Tensor:
    angle = x @ w.mT
    return torch.cat([angle.cos(), angle.sin()], -1) * w.shape[-2] ** -0.5


def _exponent(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.mT - x.square().sum(-1, keepdim=True) / 2


def directions(
    features: int, d_head: int, *, generator: torch.Generator, orthogonal: bool = True
) -> Float[Tensor, "feature d_head"]:
    """Random directions, each N(0, 1) in every coordinate, in float64.

    Orthogonal ones come in groups of d_head with independent lengths, so that each by itself is
    distributed as an independent one.
    """
    if not orthogonal:
        return torch.randn(features, d_head, generator=generator, dtype=torch.float64)
    groups = -(-features // d_head)
    shape = (groups, d_head, d_head)
    square, lengths = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    turned, upper = torch.linalg.qr(square)
    turned = turned * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # uniform over rotations
    return (turned.mT * lengths.norm(dim=-1, keepdim=True)).flatten(0, 1)[:features]


@lru_cache(maxsize=64)
def _drawn(features: int, d_head: int, orthogonal: bool, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return directions(features, d_head, generator=generator, orthogonal=orthogonal)


def _kept(features: int, d_head: int, orthogonal: bool, seed: int) -> Tensor:
    return _drawn(features, d_head, orthogonal, seed)


# A compiled graph takes the directions as they are. torch.compiler.assume_constant_result does
# this too, but loads the compiler when it is imported.
_kept._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def redrawn(rule: Performer, generator: torch.Generator) -> Performer:
    """Other random directions for the same rule; a layer takes them as its `attn.rule`."""
    seed = int(torch.randint(1 << 62, (), generator=generator))
    return replace(rule, seed=seed)
