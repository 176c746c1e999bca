"""Attention patterns as given, checked and made small enough to draw."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.plots.arrays import Numbers, as_floats, as_mask
from interp.plots.pooling import LARGEST_MAP, max_pool, pool_factor
from interp.plots.tokens import check_labels

MOST_PANELS = 16


@dataclass(frozen=True)
class Panels:
    """Maps that were checked and made small enough: [panel, row, column]."""

    values: Float[np.ndarray, "panel row column"]
    masked: Bool[np.ndarray, "row column"]
    missing: Bool[np.ndarray, "panel row column"]
    outline: Bool[np.ndarray, "row column"]
    per_cell: tuple[int, int]  # queries a row, keys a column


def maps(
    pattern: Numbers, names: Sequence[str] | None
) -> tuple[Float[np.ndarray, "head query key"], list[str]]:
    """The maps as [H Tq Tk], and a name for each.

    Raises:
        ValueError: no map, too many, or another number of names.
    """
    array = as_floats(pattern)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            "pattern is [query key] or [head query key], with at least one token; "
            f"got shape {list(as_floats(pattern).shape)}"
        )
    if len(array) > MOST_PANELS:
        raise ValueError(
            f"attention draws up to {MOST_PANELS} heads, not {len(array)}; "
            "attention_thumbnails draws them all"
        )
    names = list(names or ([f"head {h}" for h in range(len(array))] if len(array) > 1 else [""]))
    if len(names) != len(array):
        raise ValueError(f"{len(array)} heads need as many names, not {len(names)}")
    return array, names


def places_of(
    shape: tuple[int, ...],
    queries: Sequence[int] | None,
    keys: Sequence[int] | None,
    labels: Sequence[str] | None,
) -> tuple[list[int], list[int]]:
    """The positions in the sequence that rows and columns stand for.

    Raises:
        ValueError: they are not as many, or have no label.
    """
    _, rows, columns = shape
    across = list(range(columns)) if keys is None else [int(k) for k in keys]
    end = len(labels) if labels is not None else max(across) + 1
    down = list(range(end - rows, end)) if queries is None else [int(q) for q in queries]
    if len(across) != columns or len(down) != rows:
        raise ValueError(
            f"a map of {rows} queries and {columns} keys needs a position for each, "
            f"not {len(down)} and {len(across)}"
        )
    last = max(*down, *across) + 1
    if labels is not None and (len(labels) < last or min(*down, *across) < 0):
        check_labels(labels, last)
    return down, across


def seen_by(
    array: np.ndarray, mask: Numbers | None, causal: bool, places: tuple[list[int], list[int]]
) -> Bool[np.ndarray, "query key"]:
    """Which cells a query may look at: what `mask` or `causal` says, and no score is −inf.

    Raises:
        ValueError: there is weight where nothing may look.
    """
    query, key = np.meshgrid(*places, indexing="ij")
    seen = key <= query if causal else np.ones(query.shape, bool)
    if mask is not None:
        seen = as_mask(mask, query.shape, "mask")
    seen = seen & ~np.isneginf(array).all(axis=0)
    hidden = np.where(seen | np.isneginf(array), 0, np.abs(np.nan_to_num(array))).max()
    if hidden > 1e-4:
        raise ValueError(
            f"a query has weight {hidden:.3g} on a key that the mask hides; "
            "pass causal=False, or mask=, or queries= and keys= for a part of a map"
        )
    return seen


def panels_of(array: np.ndarray, seen: np.ndarray, outline: Numbers | None) -> Panels:
    """The maps pooled to what can be sent, with the cells that are masked, missing, outlined."""
    shape = seen.shape
    drawn = np.zeros(shape, bool) if outline is None else as_mask(outline, shape, "outline")
    values = np.where(seen & ~np.isneginf(array), array, np.nan)
    most = LARGEST_MAP // int(np.ceil(np.sqrt(len(array))))
    per_cell = (pool_factor(shape[0], most), pool_factor(shape[1], most))
    pooled = max_pool(values, *per_cell)
    masked = ~max_pool(seen, *per_cell)
    return Panels(pooled, masked, np.isnan(pooled) & ~masked, max_pool(drawn, *per_cell), per_cell)
