"""Attention over anyone's q, k and v."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention.kernels import AttentionCall, fused
from interp.attention.masks import Causal, Full, Visible


def attention(
    q: Float[Tensor, "batch head q d_head"],
    k: Float[Tensor, "batch kv_head k d_head"],
    v: Float[Tensor, "batch kv_head k d_value"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = True,
    scale: float | None = None,
) -> Float[Tensor, "batch head q d_value"]:
    """Mix the values by softmax attention, with the fused kernel.

    Args:
        q: Queries.
        k: Keys; their heads may divide the queries' (grouped-query attention).
        v: Values, as many heads as the keys.
        mask: True where a query may see a key; broadcasts to [B H Tq Tk]. A padding mask [B Tk] is
            given as `real[:, None, None, :]`.
        causal: Aligned at the bottom right: the last query sees all keys.
        scale: What q·k is multiplied with; 1/√d_head by default.

    Returns:
        One row a query; zeros where there is nothing to attend to, with finite gradients.

    Raises:
        TypeError: The mask is not of bools; q, k and v are not floats of one type.
        ValueError: The shapes do not fit each other.
    """
    return fused(call_of(q, k, v, mask=mask, causal=causal, scale=scale))


def call_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
) -> AttentionCall:
    """Check plain tensors and describe them as one attention call."""
    check_shapes(q, k, v)
    if scale is not None and not isinstance(scale, int | float):
        raise TypeError(f"scale must be a number, or None for 1/√d_head; got {scale!r}")
    n_q, n_k = q.shape[2], k.shape[2]
    visible = Visible(
        rule=Causal() if causal else Full(),
        q_pos=torch.arange(n_k - n_q, n_k, device=q.device)[None],
        k_pos=torch.arange(n_k, device=q.device)[None],
        extra=None if mask is None else _checked_mask(mask, q, k),
    )
    return AttentionCall(q, k, v, visible, q.shape[-1] ** -0.5 if scale is None else scale)


def check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse tensors that are not q, k and v of one attention call."""
    types = [x.dtype if isinstance(x, Tensor) else type(x).__name__ for x in (q, k, v)]
    if not (isinstance(q, Tensor) and q.is_floating_point() and types == [q.dtype] * 3):
        q_type, k_type, v_type = types
        raise TypeError(
            f"wanted q, k, v as tensors of floats of one type; got {q_type}, {k_type}, {v_type}"
        )
    sizes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"wanted q, k, v of four axes [batch head pos d_head]; got {sizes}")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
        raise ValueError(f"k and v must agree in batch, heads and length, q in batch; got {sizes}")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must have the same d_head; got {sizes}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the key heads must divide the query heads; got {sizes}")


def _checked_mask(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be bools (True = may see), got {got}; "
            "for a 0/1 mask use mask.bool(), for an additive one mask == 0"
        )
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    sizes = zip(mask.shape[::-1], wanted[::-1], strict=False)
    if mask.dim() > 4 or any(has not in (1, full) for has, full in sizes):
        raise ValueError(
            f"mask {list(mask.shape)} does not broadcast to [B H Tq Tk] {list(wanted)}"
        )
    mask = mask[(None,) * (4 - mask.dim())]
    return mask.expand(-1, -1, mask.shape[2], k.shape[2])
