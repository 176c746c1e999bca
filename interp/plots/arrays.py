"""What callers hold (tensors of any dtype, lists, arrays) as plain numpy arrays."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float

Numbers = Any  # a tensor (any float dtype, with or without gradients), an array, nested lists


def as_floats(values: Numbers, dtype: type = np.float32) -> Float[np.ndarray, "..."]:
    """The numbers, detached, on the CPU, as floats; infinities are kept.

    Raises:
        TypeError: they are complex, or no numbers at all.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    if isinstance(values, list | tuple) and any(isinstance(v, torch.Tensor) for v in values):
        values = [as_floats(v, dtype) for v in values]
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise TypeError("wanted real numbers, got complex ones; pass .real, .imag or .abs()")
    try:
        return array.astype(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"wanted numbers of one shape, got {type(values).__name__}") from error


def as_mask(mask: Numbers, shape: tuple[int, ...], name: str) -> np.ndarray:
    """A bool array of the shape wanted.

    Raises:
        ValueError: another shape, or not bool.
    """
    if isinstance(mask, torch.Tensor):
        mask = mask.detach().cpu().numpy()
    array = np.asarray(mask)
    if array.dtype != bool or array.shape != shape:
        raise ValueError(
            f"{name} is a bool array of shape {list(shape)}, not {array.dtype} {list(array.shape)}"
        )
    return array


def need_shape(array: np.ndarray, axes: str, name: str) -> None:
    """Raise unless the array has one axis for each word of `axes`.

    Raises:
        ValueError: more or fewer axes, or an empty one.
    """
    if array.ndim != len(axes.split()) or 0 in array.shape:
        raise ValueError(f"{name} is [{axes}], none of them empty; got shape {list(array.shape)}")


def count_missing(values: np.ndarray) -> int:
    """How many of the numbers are NaN."""
    return int(np.isnan(values).sum())


def some(count: int, what: str) -> str:
    """A count in words: `1 cell`, `1,024 cells`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
