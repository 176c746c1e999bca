"""PyTorch's scaled_dot_product_attention, given the widths that its fused kernels take."""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def sdpa(
    q: Float[Tensor, "*batch q d_head"],
    k: Float[Tensor, "*batch k d_head"],
    v: Float[Tensor, "*batch k d_value"],
    *,
    scale: float,
    **how: Any,
) -> Float[Tensor, "*batch q d_value"]:
    """Attention; `how` is a mask or the causal flag.

    Where values are not as wide as keys, PyTorch would hold the n×n pattern: zeros behind the
    narrower ones change no score and no value, and keep the fused kernel.
    """
    d_head, d_value = q.shape[-1], v.shape[-1]
    if d_head < d_value:
        q, k = F.pad(q, (0, d_value - d_head)), F.pad(k, (0, d_value - d_head))
    elif d_value < d_head:
        v = F.pad(v, (0, d_head - d_value))
    z = F.scaled_dot_product_attention(q, k, v, scale=scale, **how)
    return z if d_value >= d_head else z[..., :d_value]
