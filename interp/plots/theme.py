"""Colours of the light and the dark page, and the template that every figure wears.

A figure is drawn once, in the light theme. The dark one is the same figure with colours swapped
by the table below, so a page can follow the reader's system without a second copy of the data.
"""

from typing import Any, Literal, get_args

import plotly.graph_objects as go

Theme = Literal["light", "dark"]

SANS = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif'
MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'

INK, SOFT_INK, GRID, PAGE = "#1f2328", "#59636e", "#dde2e7", "#fdfdfe"
MASKED, MASKED_HATCH = "#e4e6e9", "#c3c7cc"
MISSING, MISSING_HATCH = "#fbf3ea", "#8a6d4b"
OUTLINE = "#d35400"
RING, HALO = "#020202", "#fcfcfc"  # on cells of any colour, in both themes
SHADE = "rgba(230, 159, 0, 0.16)"

# Dark scales are as dark where the light ones are light, so that ink on a cell can be swapped too.
# Text on a cell: swapped on scales that are dark in the dark theme, the same on those that aren't.
CELL_INK, CELL_LIGHT = "#161616", "#f8f8f8"
FIXED_INK, FIXED_LIGHT = "#0a0a0a", "#fafafa"

OKABE_ITO = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#000000",
)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px", "2px,2px")
MARKERS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "x",
    "star",
    "triangle-down",
)

BLUES = ["#ffffff", "#e3eef9", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c"]
BLUES += ["#08306b"]
DARK_BLUES = ["#0e1117", "#10213a", "#12304f", "#154474", "#1a5590", "#2265aa", "#3a80c8"]
DARK_BLUES += ["#8abbeb", "#e3f0fb"]
RED_BLUE = ["#67001f", "#b2182b", "#d6604d", "#f4a582", "#fddbc7", "#f7f7f7"]
RED_BLUE += ["#d1e5f0", "#92c5de", "#4393c3", "#2166ac", "#053061"]
DARK_RED_BLUE = ["#ffe0d6", "#ee8069", "#bb4531", "#84301f", "#50231d", "#1b2027"]
DARK_RED_BLUE += ["#173252", "#1d4f80", "#2969ad", "#3f86cd", "#d9edff"]

LIGHT_TO_DARK = {
    INK: "#e6edf3",
    SOFT_INK: "#9aa3ad",
    GRID: "#2c333b",
    PAGE: "#171c23",
    MASKED: "#2b3038",
    MASKED_HATCH: "#4a515b",
    MISSING: "#332a20",
    MISSING_HATCH: "#c9a981",
    OUTLINE: "#ff9b45",
    CELL_INK: "#f3f3f3",
    CELL_LIGHT: "#0c0c0c",
    OKABE_ITO[0]: "#4aa3e0",
    OKABE_ITO[7]: "#f0f0f0",
    **dict(zip(BLUES, DARK_BLUES, strict=True)),
    **dict(zip(RED_BLUE, DARK_RED_BLUE, strict=True)),
}

POSITIVE, NEGATIVE = RED_BLUE[9], RED_BLUE[1]

# What holds words and numbers of the reader's, never colours of ours.
WORDS = ("ticktext", "text", "hovertext", "hovertemplate", "name", "meta", "source", "bdata")


def repaint(part: Any, swaps: dict[str, str] | None = None) -> Any:
    """A copy of a figure's JSON with the light theme's colours replaced by the dark one's."""
    swaps = LIGHT_TO_DARK if swaps is None else swaps
    if isinstance(part, str):
        return swaps.get(part, part)
    if isinstance(part, dict):
        return {k: v if k in WORDS else repaint(v, swaps) for k, v in part.items()}
    if isinstance(part, list | tuple):
        return [repaint(item, swaps) for item in part]
    return part


def check_theme(theme: str) -> None:
    """Raise unless `theme` is one there is.

    Raises:
        ValueError: it is neither "light" nor "dark".
    """
    if theme not in get_args(Theme):
        raise ValueError(f"theme is one of {get_args(Theme)}, not {theme!r}")


def _axis() -> dict[str, Any]:
    return {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zerolinecolor": SOFT_INK,
        "tickcolor": GRID,
        "ticks": "",
        "ticklabelstandoff": 5,
        "automargin": True,
        "title": {"standoff": 10, "font": {"size": 13, "color": SOFT_INK}},
    }


def template() -> go.layout.Template:
    """Transparent paper, quiet axes, Okabe–Ito lines: the light theme."""
    return go.layout.Template(layout=quiet())


def quiet() -> dict[str, Any]:
    """The layout of the template."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(OKABE_ITO),
        "font": {"family": SANS, "size": 13, "color": INK},
        "title": {
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "yref": "container",
            "yanchor": "bottom",
            "font": {"size": 17, "color": INK},
            "subtitle": {"font": {"size": 12.5, "color": SOFT_INK}},
        },
        "hoverlabel": {
            "bgcolor": PAGE,
            "bordercolor": SOFT_INK,
            "font": {"family": SANS, "color": INK, "size": 13},
            "align": "left",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": SOFT_INK, "activecolor": INK},
        "hovermode": "closest",
        "legend": {"font": {"size": 12}, "bgcolor": "rgba(0,0,0,0)"},
        "xaxis": _axis(),
        "yaxis": _axis(),
        "dragmode": "zoom",
    }
