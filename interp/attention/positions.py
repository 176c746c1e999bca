"""Where a token stands: sinusoids, rotations, linear biases."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def sinusoids(n_ctx: int, d_model: int, base: float = 10_000.0) -> Float[Tensor, "n_ctx d_model"]:
    """PE(pos, 2i) = sin(pos / base^(2i/d)), and the cosine at 2i + 1.

    Source: Vaswani et al. 2017, "Attention Is All You Need", §3.5.
    """
    angle = _angles(n_ctx, d_model, base)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[:, :d_model].float()


def rotations(
    n_ctx: int,
    rotary_dim: int,
    base: float = 10_000.0,
    scaling: Mapping[str, Any] | None = None,
) -> Float[Tensor, "2 n_ctx half"]:
    """Cosines and sines of pos · base^(−2i/rotary_dim), computed in float64.

    Args:
        n_ctx: Number of positions.
        rotary_dim: Coordinates of a head that are turned.
        base: Base of the wavelengths.
        scaling: As `TransformerConfig.rotary_scaling`, or None.

    Source: Su et al. 2021, "RoFormer".
    """
    frequency = _frequencies(rotary_dim, base)
    if scaling is not None:
        frequency = _stretched(frequency, scaling)
    angle = torch.outer(torch.arange(n_ctx, dtype=torch.float64), frequency)
    return torch.stack([angle.cos(), angle.sin()]).float()


def _frequencies(width: int, base: float) -> Float[Tensor, " half"]:
    return base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def _stretched(
    frequency: Float[Tensor, " half"], scaling: Mapping[str, Any]
) -> Float[Tensor, " half"]:
    """Frequencies divided by a factor: all of them, or only those of long wavelengths.

    Source: Chen et al. 2023 ("linear"); Dubey et al. 2024, "The Llama 3 Herd of Models".
    """
    slowed = frequency / scaling["factor"]
    if scaling["kind"] == "linear":
        return slowed
    turns = scaling["original_n_ctx"] * frequency / (2 * math.pi)  # within the old context
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * frequency + (1 - kept) * slowed


def _angles(n: int, width: int, base: float) -> Float[Tensor, "n half"]:
    return torch.outer(torch.arange(n, dtype=torch.float64), _frequencies(width, base))


def rotate(
    x: Float[Tensor, "batch pos head d_head"],
    turn: Float[Tensor, "2 b pos half"],
    *,
    interleaved: bool = False,
) -> Float[Tensor, "batch pos head d_head"]:
    """Turn the first 2·half coordinates of each head by its position's angle.

    Pairs are (i, i + half), or (2i, 2i + 1) where `interleaved`; the rest is left alone. It is
    differentiable in x, any number of times; not in `turn`.
    """
    return _rotated(x, turn, interleaved, 1.0)


class _Rotation(torch.autograd.Function):
    """What `_turned` does; its derivative is the rotation by the opposite angle."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, turn: Tensor, interleaved: bool, sign: float) -> Tensor:
        return _turned(x, turn, interleaved, sign)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, turn, ctx.interleaved, ctx.sign = inputs
        ctx.save_for_backward(turn)
        ctx.save_for_forward(turn)

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> Tensor:
        (turn,) = ctx.saved_tensors
        return _rotated(along[0], turn, ctx.interleaved, ctx.sign)

    @staticmethod
    def backward(ctx: Any, *towards: Any) -> tuple[Tensor, None, None, None]:
        (turn,) = ctx.saved_tensors
        return _rotated(towards[0], turn, ctx.interleaved, -ctx.sign), None, None, None


def _rotated(x: Tensor, turn: Tensor, interleaved: bool, sign: float) -> Tensor:
    # A compiler derives and fuses `_turned` itself.
    if x.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _Rotation.apply(x, turn, interleaved, sign)
    return _turned(x, turn, interleaved, sign)


def _turned(
    x: Float[Tensor, "batch pos head d_head"],
    turn: Float[Tensor, "2 b pos half"],
    interleaved: bool,
    sign: float,
) -> Float[Tensor, "batch pos head d_head"]:
    """In three products: all coordinates by their cosines, then each half by the other's sines."""
    cos, sin = turn[:, :, :, None].to(x.dtype).unbind()
    half, rest = cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]
    wide = cos.repeat_interleave(2, -1) if interleaved else torch.cat([cos, cos], -1)
    out = x * (F.pad(wide, (0, rest), value=1.0) if rest else wide)
    first, second = slice(0, half), slice(half, 2 * half)
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    out[..., first].addcmul_(x[..., second], sin, value=-sign)
    out[..., second].addcmul_(x[..., first], sin, value=sign)
    return out


def alibi_slopes(n_heads: int) -> list[float]:
    """One slope a head: 2^(−8h/n), interpolated where n is no power of two.

    Source: Press et al. 2022, "Train Short, Test Long".
    """
    below = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (h + 1) / below) for h in range(below)]
    between = [2.0 ** (-8.0 * (h + 1) / (2 * below)) for h in range(0, 2 * below, 2)]
    return (slopes + between)[:n_heads]


@dataclass(frozen=True)
class Alibi:
    """The bias −slope · |q − k| that is added to a head's scores."""

    slopes: tuple[float, ...]

    def __call__(
        self, q_pos: Int[Tensor, "b q"], k_pos: Int[Tensor, "b k"]
    ) -> Float[Tensor, "b head q k"]:
        """The bias of every head, for these positions, in float32."""
        slope = torch.tensor(self.slopes, device=q_pos.device)[:, None, None]
        distance = (q_pos[:, None, :, None] - k_pos[:, None, None, :]).abs()
        return -slope * distance
