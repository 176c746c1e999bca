"""Cells of a map: colours, hatches over what has no number, rings, outlines, and what is clicked.

Cell (row, column) is centred on (y=row, x=column). A heatmap answers to no click in Streamlit, and
writes its own text in one colour: a layer of invisible squares is clicked instead, and a layer of
words is written in black or white.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from interp.plots import scales, theme
from interp.plots.arrays import some
from interp.plots.text import escape

Axes = tuple[str, str]  # the subplot: ("x", "y"), ("x2", "y2"), …
ROOT: Axes = ("x", "y")


def on(axes: Axes) -> dict[str, str]:
    """The arguments that put a trace on a subplot."""
    return {"xaxis": axes[0], "yaxis": axes[1]}


def bar_words(kind: str, name: str | None = None) -> str:
    """What stands at the colour bar: the quantity, and the sign in words."""
    scale = scales.scale_of(kind)
    words = [escape(name or scale.bar)]
    return "; ".join(words + ([scale.sign] if scale.sign else []))


def coloraxis(kind: str, span: tuple[float, float], **bar: Any) -> dict[str, Any]:
    """The scale that the maps of a figure share; `finish(bar=…)` puts its bar over the plot."""
    return {
        "colorscale": scales.scale_of(kind).stops(),
        "cmin": span[0],
        "cmax": span[1],
        "colorbar": bar,
    }


def colors(
    values: Float[np.ndarray, "row column"],
    *,
    numbers: dict[str, str],
    series: str = "",
    masked: Bool[np.ndarray, "row column"] | None = None,
    ends: tuple[float, float] | None = None,
    axes: Axes = ROOT,
) -> go.Heatmap:
    """The coloured cells, on the figure's `coloraxis`.

    Args:
        values: one number a cell.
        numbers: what the table of the figure's numbers calls x, y and z.
        series: what tells this map from others of the figure, in that table.
        masked: cells that are no part of the table.
        ends: where the values are bytes, the numbers that 0 and 255 stand for.
        axes: the subplot.
    """
    hidden = [] if masked is None else [list(box) for box in rectangles(masked)]
    return go.Heatmap(
        z=values,
        coloraxis="coloraxis",
        hoverongaps=False,
        hoverinfo="skip",
        meta={"numbers": numbers, "series": series, "masked": hidden, "bytes": ends},
        **on(axes),
    )


def rectangles(mask: Bool[np.ndarray, "row column"]) -> list[tuple[int, int, int, int]]:
    """Rectangles (top, bottom, left, right; ends exclusive) that tile the True cells."""
    open_runs: dict[tuple[int, int], int] = {}
    found = []
    for row in range(len(mask) + 1):
        runs = _runs(mask[row]) if row < len(mask) else set()
        for run in [run for run in open_runs if run not in runs]:
            found.append((open_runs.pop(run), row, *run))
        for run in runs:
            open_runs.setdefault(run, row)
    return sorted(found)


def _runs(row: Bool[np.ndarray, " column"]) -> set[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
    return {(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)}


def _borders(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    boxes = np.array(rectangles(mask), dtype=np.float32).reshape(-1, 4) - 0.5
    top, bottom, left, right = boxes.T
    gap = np.full_like(top, np.nan)
    x = np.stack([left, right, right, left, left, gap], axis=1).ravel()
    y = np.stack([top, top, bottom, bottom, top, gap], axis=1).ravel()
    return x, y


def hatch(
    mask: Bool[np.ndarray, "row column"], why: str, *, missing: bool, axes: Axes = ROOT
) -> list[go.Scatter]:
    """Hatched rectangles over the True cells: crosses for missing numbers, strokes for masked."""
    if not mask.any():
        return []
    x, y = _borders(mask)
    fill, lines = (
        (theme.MISSING, theme.MISSING_HATCH) if missing else (theme.MASKED, theme.MASKED_HATCH)
    )
    pattern = {"shape": "x" if missing else "/", "bgcolor": fill, "fgcolor": lines, "size": 8}
    pattern |= {"solidity": 0.15, "fillmode": "replace"}
    return [
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            line={"width": 0, "color": lines},
            fill="toself",
            fillcolor=fill,
            fillpattern=pattern,
            hoverinfo="skip",
            name=why,
            showlegend=False,
            **on(axes),
        )
    ]


def outlines(
    mask: Bool[np.ndarray, "row column"],
    why: str,
    axes: Axes = ROOT,
    *,
    legend: bool = True,
    width: float = 1.6,
) -> list[go.Scatter]:
    """Lines around the True cells."""
    if not mask.any():
        return []
    x, y = _borders(mask)
    line = {"color": theme.OUTLINE, "width": width if len(mask) <= 64 else 1}
    return [
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            line=line,
            hoverinfo="skip",
            name=escape(why),
            showlegend=legend,
            **on(axes),
        )
    ]


def marks(
    mask: Bool[np.ndarray, "row column"],
    why: str,
    *,
    symbol: str,
    size: int = 11,
    axes: Axes = ROOT,
) -> list[go.Scatter]:
    """A mark in each True cell, black with a white edge, so it shows on any colour."""
    rows, columns = np.nonzero(mask)
    if not rows.size:
        return []
    ring = symbol.endswith("-open")
    shared = {"x": columns, "y": rows, "mode": "markers", "hoverinfo": "skip"}
    shared["unselected"] = {"marker": {"opacity": 1}}  # a click elsewhere does not fade it
    halo = {"symbol": symbol, "size": size, "color": theme.HALO, "line": {"width": 5}}
    front = {"symbol": symbol, "size": size, "color": theme.RING, "line": {"width": 2}}
    if not ring:
        halo["line"] = front["line"] = {"width": 1.5, "color": theme.HALO}
    return [
        go.Scatter(**shared, marker=halo, name=f"{why} (halo)", showlegend=False, **on(axes)),
        go.Scatter(**shared, marker=front, name=why, showlegend=False, **on(axes)),
    ]


def targets(hover: list[str], columns: int, axes: Axes = ROOT) -> go.Scatter:
    """Invisible squares, one a cell in reading order: they are hovered and clicked.

    The x and y of a clicked point are the cell's column and row.
    """
    rows, cols = np.divmod(np.arange(len(hover)), columns)
    return go.Scatter(
        x=cols,
        y=rows,
        mode="markers",
        marker={"symbol": "square", "size": 24, "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        name="cells",
        showlegend=False,
        **on(axes),
    )


def words(
    texts: list[str], columns: int, *, ink: list[str], size: int = 12, axes: Axes = ROOT
) -> list[go.Scatter]:
    """A text in each cell, in reading order; one trace an ink, so that a click fades none."""
    rows, cols = np.divmod(np.arange(len(texts)), columns)
    traces = []
    for color in dict.fromkeys(ink):
        chosen = [i for i, own in enumerate(ink) if own == color and texts[i]]
        traces.append(
            go.Scatter(
                x=cols[chosen],
                y=rows[chosen],
                text=[texts[i] for i in chosen],
                mode="text",
                textfont={"color": color, "size": size},
                selected={"textfont": {"color": color}},
                unselected={"textfont": {"color": color}},
                hoverinfo="skip",
                name="text",
                showlegend=False,
                **on(axes),
            )
        )
    return traces


def selection(selected: tuple[int, int] | None, shape: tuple[int, ...]) -> list[go.Scatter]:
    """An outline around the selected (row, column), if there is one.

    Raises:
        ValueError: there is no such cell.
    """
    if selected is None:
        return []
    if not (0 <= selected[0] < shape[0] and 0 <= selected[1] < shape[1]):
        raise ValueError(f"selected is a cell of {shape[0]} × {shape[1]}, not {selected}")
    mask = np.zeros(shape, bool)
    mask[selected] = True
    return outlines(mask, "selected", legend=False, width=3)


def counted_axis(
    count: int, title: str, *, prefix: str = "", down: bool = False, most: int = 24
) -> dict[str, Any]:
    """An axis of integers; `down` puts 0 on top."""
    ends = [-0.5, count - 0.5]
    return {
        "title": {"text": title},
        "range": ends[::-1] if down else ends,
        "tick0": 0,
        "dtick": max(1, -(-count // most)),
        "tickprefix": prefix,
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
    }


def missing_note(values: np.ndarray, what: str = "cell") -> str:
    """The sentence that counts the numbers there are not, or nothing."""
    count = int(np.isnan(values).sum())
    return f"{some(count, what)} without a number (NaN), crossed out" if count else ""


def clipped_note(values: np.ndarray, span: tuple[float, float]) -> str:
    """The sentence on cells beyond the colour scale, or nothing."""
    out = scales.beyond(values, span)
    if not out.any():
        return ""
    worst = values[out][np.abs(values[out]).argmax()]
    return f"{some(int(out.sum()), 'cell')} beyond the colour scale, marked ◆ (up to {worst:+.3g})"


def subplot(index: int) -> Axes:
    """The axes of the subplot with that index: `("x", "y")`, then `("x2", "y2")`."""
    number = "" if index == 0 else str(index + 1)
    return f"x{number}", f"y{number}"
