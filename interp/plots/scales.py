"""Which colours stand for what: one entry a kind of number, and the ink that is legible on it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from plotly.colors import get_colorscale

from interp.plots import theme
from interp.plots.arrays import some

Kind = Literal[
    "score",
    "entropy",
    "probability",
    "flow",
    "loss",
    "amount",
    "effect",
    "difference",
    "signed",
    "patch",
]


@dataclass(frozen=True)
class Scale:
    """Colours, the range they span (None: from the data) and what the colour bar says."""

    colors: tuple[str, ...]
    low: float | None
    high: float | None
    bar: str
    sign: str | None = None
    themed: bool = False  # are its colours other ones in the dark theme?

    @property
    def diverging(self) -> bool:
        """Is zero the middle, with blue for positive?"""
        return self.sign is not None

    def stops(self) -> list[list]:
        """Plotly's form: pairs of a place in [0, 1] and a colour."""
        places = np.linspace(0, 1, len(self.colors))
        return [[round(float(p), 6), c] for p, c in zip(places, self.colors, strict=True)]


def _named(name: str) -> tuple[str, ...]:
    return tuple(color for _, color in get_colorscale(name))


VIRIDIS, CIVIDIS = _named("Viridis"), _named("Cividis")
BLUES, RED_BLUE = tuple(theme.BLUES), tuple(theme.RED_BLUE)

SCALES: dict[str, Scale] = {
    "score": Scale(VIRIDIS, 0, 1, "score"),
    "entropy": Scale(CIVIDIS, 0, 1, "normalised entropy (1 = uniform)"),
    "probability": Scale(BLUES, 0, 1, "probability", themed=True),
    "flow": Scale(BLUES, 0, None, "amount", themed=True),
    "loss": Scale(CIVIDIS, 0, None, "loss (nats)"),
    "amount": Scale(VIRIDIS, 0, None, "amount"),
    "effect": Scale(
        RED_BLUE,
        None,
        None,
        "Δloss in nats, ablated − clean",
        "blue = loss rises without the head: it was helping",
        themed=True,
    ),
    "difference": Scale(
        RED_BLUE, None, None, "difference", "blue = higher, red = lower", themed=True
    ),
    "signed": Scale(RED_BLUE, None, None, "value", "blue = positive, red = negative", themed=True),
    "patch": Scale(
        RED_BLUE,
        -1,
        1,
        "normalised effect",
        "0 = as corrupted, 1 (blue) = as clean",
        themed=True,
    ),
}


def scale_of(kind: str) -> Scale:
    """The scale of a kind of number.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in SCALES:
        raise ValueError(f"kind is one of {', '.join(SCALES)}, not {kind!r}")
    return SCALES[kind]


def limits(
    values: np.ndarray, kind: str, *, given: tuple[float, float] | None = None
) -> tuple[float, float]:
    """The range that the colours span.

    Fixed where the kind has a fixed one. A diverging scale is symmetric: ± the largest size, but
    no more than three times the root mean square, so that one outlier does not turn the rest
    pale (what lies beyond is marked by the caller, see `beyond`).

    Raises:
        ValueError: numbers lie outside a fixed range and no other one is given.
    """
    scale, finite = scale_of(kind), values[np.isfinite(values)]
    if given is not None:
        return _given(given, scale)
    if scale.diverging and scale.low is None:
        return _symmetric(finite)
    low = 0.0 if scale.low is None else scale.low
    top = float(finite.max(initial=0)) or 1.0
    high = top if scale.high is None else scale.high
    outside = finite[(finite < low - 1e-3) | (finite > high + 1e-3)]
    if outside.size and kind != "patch":
        raise ValueError(
            f"kind={kind!r} draws numbers in [{low:g}, {high:g}], but "
            f"{some(outside.size, 'cell')} lie outside (for example {outside[0]:.4g}); "
            "pass limits=(low, high), or kind='amount' or 'difference'"
        )
    return low, high


def _given(given: tuple[float, float], scale: Scale) -> tuple[float, float]:
    low, high = float(given[0]), float(given[1])
    if not low < high:
        raise ValueError(f"limits are (low, high) with low < high, not {given}")
    if scale.diverging and abs(low + high) > 1e-6 * (high - low):
        raise ValueError(f"a diverging scale is symmetric: pass limits=(-x, x), not {given}")
    return low, high


def _symmetric(finite: np.ndarray) -> tuple[float, float]:
    if not finite.size:
        return -1.0, 1.0
    size = float(np.abs(finite).max())
    spread = 3 * float(np.sqrt(np.mean(finite.astype(np.float64) ** 2)))
    size = min(size, spread) or 1.0
    return -size, size


def beyond(values: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    """Cells whose number the colours can't show, as bools."""
    slack = 1e-3 * (span[1] - span[0])
    return (values < span[0] - slack) | (values > span[1] + slack)


def color_at(value: float, kind: str, *, span: tuple[float, float], dark: bool = False) -> str:
    """The colour of one number, as `#rrggbb`."""
    colors = scale_of(kind).colors
    if dark:
        colors = tuple(theme.LIGHT_TO_DARK.get(c, c) for c in colors)
    place = (value - span[0]) / (span[1] - span[0])
    place = float(np.clip(place, 0, 1)) * (len(colors) - 1)
    left = min(int(place), len(colors) - 2)
    ends = np.array([rgb(colors[left]), rgb(colors[left + 1])])
    mixed = ends[0] + (ends[1] - ends[0]) * (place - left)
    return "#" + "".join(f"{round(c):02x}" for c in mixed)


def rgb(color: str) -> tuple[int, int, int]:
    """Red, green and blue in 0…255 of `#rrggbb`."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def luminance(color: str) -> float:
    """Relative luminance in [0, 1].

    Source: WCAG 2.2, "relative luminance".
    """
    parts = np.array(rgb(color)) / 255
    parts = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(parts @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours: 1 for equal ones, 21 for black on white.

    Source: WCAG 2.2, "contrast ratio".
    """
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def inks(values: np.ndarray, kind: str, *, span: tuple[float, float]) -> list[str]:
    """Black or white for the text of each cell, whichever stands out from the cell's colour."""
    dark, light = theme.FIXED_INK, theme.FIXED_LIGHT
    if scale_of(kind).themed:
        dark, light = theme.CELL_INK, theme.CELL_LIGHT
    return [_ink(float(v), kind, span, (dark, light)) for v in values.ravel()]


def _ink(value: float, kind: str, span: tuple[float, float], pair: tuple[str, str]) -> str:
    if not np.isfinite(value):
        return theme.INK
    cell = color_at(value, kind, span=span)
    return max(pair, key=lambda ink: contrast(ink, cell))
