"""Large maps made small enough to send: the largest of each block, and one byte a cell."""

from dataclasses import dataclass

import numpy as np

LARGEST_MAP = 512  # cells a side
LARGEST_FLOAT_MAP = 256  # cells a side; beyond, one byte a cell


@dataclass(frozen=True)
class Bytes:
    """Numbers as bytes: `number = low + code · (high − low) / 255`."""

    codes: np.ndarray
    low: float
    high: float

    @property
    def ticks(self) -> dict[str, list]:
        """Where on the byte scale the numbers of a colour bar stand."""
        places = np.linspace(0, 255, 5)
        numbers = self.low + places / 255 * (self.high - self.low)
        return {"tickvals": list(places), "ticktext": [f"{n:.3g}" for n in numbers]}


def pool_factor(length: int, most: int = LARGEST_MAP) -> int:
    """How many neighbours share a cell so that at most `most` cells are left."""
    return max(1, -(-length // most))


def max_pool(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The largest number of each block of `rows` × `columns` cells, along the last two axes.

    A mean would hide single bright cells. NaN only where a whole block is NaN.
    """
    if rows == columns == 1:
        return values
    *rest, height, width = values.shape
    pad = [(0, 0)] * len(rest) + [(0, -height % rows), (0, -width % columns)]
    empty = False if values.dtype == bool else -np.inf
    filled = values if values.dtype == bool else np.where(np.isnan(values), -np.inf, values)
    filled = np.pad(filled, pad, constant_values=empty)
    blocks = filled.reshape(*rest, -(-height // rows), rows, -(-width // columns), columns)
    pooled = blocks.max(axis=(-3, -1))
    return pooled if values.dtype == bool else np.where(pooled == -np.inf, np.nan, pooled)


def pack(values: np.ndarray, low: float, high: float) -> Bytes:
    """The numbers in one byte each; what is outside [low, high] is clipped, NaN becomes `low`."""
    share = (np.nan_to_num(values, nan=low) - low) / (high - low)
    return Bytes(np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8), low, high)
