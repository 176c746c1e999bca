"""Few rows in which every two values of different factors meet."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows, chosen greedily: each next one meets the most pairs that no row has met yet."""
    names = list(factors)
    rows = [dict(zip(names, values, strict=True)) for values in product(*factors.values())]
    missing = {pair for row in rows for pair in _pairs(row)}
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(missing & _pairs(row)))
        missing -= _pairs(best)
        chosen.append(best)
    return chosen


def _pairs(row: Mapping[str, Any]) -> set[tuple]:
    return set(combinations(sorted(row.items()), 2))
