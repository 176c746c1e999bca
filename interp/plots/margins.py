"""How much room an axis takes, guessed from its labels.

plotly measures it, and where the margins it began with are too small it draws the figure a second
time: half of what a figure takes in a browser. Where a guess is short, it does so still; where it
is long, some pixels stay blank.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from interp.plots.arrays import as_floats
from interp.plots.text import unescape

LETTER, OTHERS = 0.65, dict.fromkeys(" .,:'|!fijlrt-", 0.4) | {"m": 1.0, "w": 0.85}
"""Of the font's size: how wide letters and digits are, in a wide font."""

TITLE, TITLE_BELOW, BARE = 34, 41, 13  # pixels: an axis' title and its distances; without one
MOST = 240  # pixels, whatever the labels: some of the figure has to be left
STANDOFF = 5  # of tick labels, in the template


def rooms(data: Sequence[dict[str, Any]], layout: dict[str, Any]) -> dict[str, int]:
    """The left and the bottom margin, of those that can be told."""
    found: dict[str, int] = {}
    if any("scaleanchor" in axis for axis in layout.values() if isinstance(axis, dict)):
        return found  # squares lie where they fit, and their labels beside them
    for side, letter, room in (("l", "y", _beside), ("b", "x", _below)):
        axes = [axis for name, axis in layout.items() if name.startswith(f"{letter}axis")]
        taken = [room(axis, data) for axis in axes]
        known = [pixels for pixels in taken if pixels is not None]
        if axes and len(known) == len(axes):
            found[side] = min(MOST, math.ceil(max(known)))
    return found


def _beside(axis: dict[str, Any], data: Sequence[dict[str, Any]]) -> float | None:
    """Left of a vertical axis."""
    labels = _labels(axis, data, "y")
    if labels is None:
        return None
    standoff = axis.get("ticklabelstandoff", STANDOFF)
    return (TITLE if _titled(axis) else BARE) + standoff + _width(labels, axis)


def _below(axis: dict[str, Any], data: Sequence[dict[str, Any]]) -> float | None:
    """Under a horizontal axis."""
    labels = _labels(axis, data, "x")
    if labels is None:
        labels = ["0"]  # numbers stand side by side
    upright = axis.get("tickangle") == -90
    height = _width(labels, axis) if upright else _size(axis)
    return (TITLE_BELOW if _titled(axis) else BARE) + height * any(labels)


def _titled(axis: dict[str, Any]) -> bool:
    return bool(axis.get("title", {}).get("text"))


def _size(axis: dict[str, Any]) -> float:
    return axis.get("tickfont", {}).get("size", 13)


def _width(labels: Sequence[str], axis: dict[str, Any]) -> float:
    letters = ([OTHERS.get(letter, LETTER) for letter in label] for label in labels)
    return _size(axis) * max(map(sum, letters), default=0)


def _labels(axis: dict[str, Any], data: Sequence[dict[str, Any]], which: str) -> list[str] | None:
    """What stands at the ticks, as far as its width goes; None if nobody can tell."""
    if axis.get("showticklabels") is False:
        return [""]
    if "ticktext" in axis:
        return [unescape(text) for text in axis["ticktext"]]
    if "dtick" in axis and "range" in axis:
        return [f"{axis.get('tickprefix', '')}{int(max(axis['range']))}"]
    if axis.get("rangemode") == "tozero":
        return [_number(data, which)]
    return None


def _number(data: Sequence[dict[str, Any]], which: str) -> str:
    """The longest number on an axis from 0 to the largest, in five steps or so."""
    ends = [np.abs(as_floats(trace[which])) for trace in data if which in trace]
    finite = [end[np.isfinite(end)] for end in ends]  # plotly draws no others
    top = max((float(end.max(initial=0.0)) for end in finite), default=0.0) or 1.0
    places = max(0, -math.floor(math.log10(top / 4)))
    return f"{top:.{places}f}"
