"""What may be asked of a view of attention: options, numbers and sets of keys, checked."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention.call import AttentionCall


def check_scores(bias: Callable[[Tensor, Tensor], Tensor] | None, soft_cap: float | None) -> None:
    """Refuse what changes no scores.

    Raises:
        TypeError: The bias is no function of positions.
        ValueError: The soft cap is no positive number.
    """
    if bias is not None and not callable(bias):
        raise TypeError(
            "bias must be a function of the positions of queries and keys, (q_pos, k_pos) -> "
            f"[B|1, H|1, Tq, Tk]; got {type(bias).__name__}"
        )
    if soft_cap is not None and not (_is_number(soft_cap) and soft_cap > 0):
        raise ValueError(f"soft_cap must be a number above 0, or None; got {soft_cap!r}")


def check_memory(memory: int) -> None:
    """Refuse a bound that nothing fits into.

    Raises:
        ValueError: It is no positive number of bytes.
    """
    if not _is_number(memory) or not memory >= 1:
        raise ValueError(f"memory must be a positive number of bytes, got {memory!r}")


def check_order(order: float) -> None:
    """Refuse what is no order of a Rényi entropy.

    Raises:
        ValueError: It is no number, or a negative one.
    """
    if not _is_number(order) or not order >= 0:
        raise ValueError(f"a Rényi entropy has an order of at least 0, got {order!r}")


def check_top(k: int) -> None:
    """Refuse what is no number of keys.

    Raises:
        ValueError: It is no whole number, or below 1.
    """
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"wanted a whole number of keys, at least 1; got k={k!r}")


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def as_bools(keys: Bool[Tensor, "*#batch k"] | Sequence[int], n_k: int) -> Tensor:
    """A set of keys as bools, [Tk] or [B Tk].

    Raises:
        TypeError: A tensor that is not of bools.
        ValueError: There is no such key.
    """
    if isinstance(keys, Tensor):
        if keys.dtype != torch.bool:
            raise TypeError(
                f"a set of keys is bools [Tk] or [B Tk], or a list of indices; got {keys.dtype}. "
                "For indices use keys.tolist()"
            )
        return keys
    listed, chosen = list(keys), torch.zeros(n_k, dtype=torch.bool)
    if not all(isinstance(key, int) and 0 <= key < n_k for key in listed):
        raise ValueError(f"keys are indices from 0 to {n_k - 1}, got {listed}")
    chosen[listed] = True
    return chosen


def as_values(features: Tensor, call: AttentionCall) -> Float[Tensor, "b h k feature"]:
    """Features of keys with four axes.

    Raises:
        TypeError: They are no tensor.
        ValueError: They are not one row a key.
    """
    n_k = call.visible.n_k
    if not isinstance(features, Tensor):
        raise TypeError(f"features are a tensor, one row a key; got {type(features).__name__}")
    if features.dim() not in (2, 3, 4) or features.shape[-2] != n_k:
        raise ValueError(
            f"features are [Tk F], [B Tk F] or [B H Tk F] with Tk = {n_k}; "
            f"got {list(features.shape)}"
        )
    if features.dim() == 2:
        return features[None, None]
    return features[:, None] if features.dim() == 3 else features
