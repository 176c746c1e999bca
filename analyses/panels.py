"""Panels of lines for experiments' figures: Okabe–Ito colours, each with a dash of its own."""

from collections.abc import Sequence
from typing import Any

from plotly import graph_objects as go
from plotly.subplots import make_subplots

from interp.plots.theme import DASHES, MARKERS, OKABE_ITO, SHADE, template

COLOURS = tuple(colour for colour in OKABE_ITO if colour != "#F0E442")  # too pale for a line


def figure(
    question: str, titles: Sequence[str], *, columns: int = 2, height: int = 480
) -> go.Figure:
    """An empty figure with a panel a title, row by row; the question is the figure's title."""
    rows = -(-len(titles) // columns)
    made = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=list(titles),
        horizontal_spacing=0.1,
        vertical_spacing=0.17,
    )
    legend = {"orientation": "h", "yanchor": "top", "y": -0.12 if rows > 1 else -0.2, "x": 0}
    margin = {"t": 90, "b": 40, "l": 50, "r": 20}
    made.update_layout(
        template=template(), title=question, height=height, legend=legend, margin=margin
    )
    return made


def place(panel: int, columns: int = 2) -> dict[str, Any]:
    """Row and column of a panel, counted from 0."""
    return {"row": panel // columns + 1, "col": panel % columns + 1}


def line(
    x: Sequence[float], y: Sequence[float], *, name: str, style: int, **more: Any
) -> go.Scatter:
    """A line in the colour and dash of that number."""
    pen = {"color": COLOURS[style % len(COLOURS)], "dash": DASHES[style % len(DASHES)], "width": 2}
    return go.Scatter(x=list(x), y=list(y), name=name, mode="lines", line=pen, **more)


def axes(made: go.Figure, panel: int, *, x: str, y: str, columns: int = 2, **of_y: Any) -> None:
    """The titles of a panel's axes, and how its y axis is."""
    made.update_xaxes(title_text=x, **place(panel, columns))
    made.update_yaxes(title_text=y, **of_y, **place(panel, columns))


def points(x: Sequence[float], y: Sequence[float], *, name: str, style: int) -> go.Scatter:
    """Points in the colour and shape of that number."""
    dot = {"color": COLOURS[style % len(COLOURS)], "symbol": MARKERS[style % 8], "size": 11}
    return go.Scatter(x=list(x), y=list(y), name=name, mode="markers", marker=dot)


def bar(x: Sequence[Any], y: Sequence[float], *, name: str, style: int = 0) -> go.Bar:
    """Bars in the colour of that number."""
    return go.Bar(x=list(x), y=list(y), name=name, marker_color=COLOURS[style % len(COLOURS)])


def shade(
    made: go.Figure,
    panel: int,
    *,
    low: float | None,
    high: float | None,
    words: str,
    columns: int = 2,
) -> None:
    """Shade a window of a panel, if there is one, with words at its foot."""
    if low is None or high is None:
        return
    made.add_vrect(
        x0=low,
        x1=high,
        fillcolor=SHADE,
        line_width=0,
        annotation_text=words,
        annotation_position="bottom left",
        **place(panel, columns),
    )
