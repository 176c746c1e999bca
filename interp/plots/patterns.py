"""Attention patterns: who looks where, with the cells where a kind of head should look outlined."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Bool
from plotly.subplots import make_subplots

from interp.plots import grid, scales
from interp.plots.arrays import Numbers, some
from interp.plots.figure import Figure, finish
from interp.plots.panels import Panels, maps, panels_of, places_of, seen_by
from interp.plots.pooling import LARGEST_FLOAT_MAP, pack
from interp.plots.text import escape, sentence
from interp.plots.tokens import label_room, thinned, token_axis

MOST_NAMED = 40  # rows and columns; more names run into each other

What = Literal["probability", "scores", "value-weighted"]
Target = Literal["induction", "previous", "duplicate", "first"]

WHAT = {  # the scale, and the words at the colour bar
    "probability": ("probability", "attention probability"),
    "scores": ("signed", "attention score before softmax"),
    "value-weighted": ("flow", "attention × norm of the value"),
}


def where_to_look(tokens: Numbers, target: Target) -> Bool[np.ndarray, "query key"]:
    """The cells where a head of that kind should look, for one sequence of tokens [T].

    "induction": after each earlier occurrence of the query's token; "previous": one back;
    "duplicate": at each earlier occurrence; "first": the first token.

    Raises:
        ValueError: there is no such target, or tokens are not one sequence.
    """
    ids = tokens.detach().cpu().numpy() if isinstance(tokens, torch.Tensor) else np.asarray(tokens)
    if ids.ndim != 1:
        raise ValueError(f"wanted the tokens of one sequence, [T]; got shape {list(ids.shape)}")
    if target not in get_args(Target):
        raise ValueError(f"target is one of {', '.join(get_args(Target))}, not {target!r}")
    query, key = np.indices((len(ids), len(ids)))
    earlier = (ids[:, None] == ids[None, :]) & (key < query)
    if target == "induction":
        return np.pad(earlier[:, :-1], ((0, 0), (1, 0)))
    if target == "duplicate":
        return earlier
    return key == query - 1 if target == "previous" else (key == 0) & (query > 0)


def attention(
    pattern: Numbers,
    labels: Sequence[str] | None = None,
    *,
    what: What = "probability",
    names: Sequence[str] | None = None,
    mask: Numbers | None = None,
    causal: bool = True,
    queries: Sequence[int] | None = None,
    keys: Sequence[int] | None = None,
    outline: Numbers | None = None,
    outline_means: str = "where such a head should look",
    full_range: bool = True,
    title: str | None = None,
    theme: str = "light",
) -> Figure:
    """A map of one head, or of up to 16: a row a query (first on top), a column a key.

    Cells that a query may not see are hatched grey, which is not the colour of 0. Above 512
    tokens each cell is the largest of a block, above 256 it is sent as one byte; both are said
    under the title.

    Args:
        pattern: [Tq Tk], or [H Tq Tk].
        labels: the strings of the whole sequence; None: bare positions.
        what: probabilities on a fixed [0, 1]; scores (−inf is masked); or value-weighted.
        names: of the H heads.
        mask: bool [Tq Tk], True where a query may look; None: what `causal` says.
        causal: may a query only see itself and what precedes it?
        queries: positions of the rows; None: the last Tq.
        keys: positions of the columns; None: 0 … Tk − 1.
        outline: bool [Tq Tk], cells to draw a line around (see `where_to_look`).
        outline_means: what the outline is, in words.
        full_range: False lets the colours end at the largest probability, and says so.
        title: the question asked.
        theme: "light" or "dark".

    Raises:
        ValueError: shapes that don't fit, or weight on keys that the mask hides.
    """
    if what not in WHAT:
        raise ValueError(f"what is one of {', '.join(WHAT)}, not {what!r}")
    array, names = maps(pattern, names)
    places = places_of(array.shape, queries, keys, labels)
    panels = panels_of(array, seen_by(array, mask, causal, places), outline)
    scale, words = WHAT[what]
    span = _span(panels, what, full_range)
    fig, packed = _draw(panels, names, places, labels, scale, span)
    fig.add_traces(_outlines(panels, outline_means, len(names)))
    return finish(
        fig,
        question=title or "Where does each token look?",
        alt=_alt(array, panels, names, what, outline_means),
        formula="softmax(q·k · scale) over the visible keys" if what == "probability" else words,
        sign=scales.scale_of(scale).sign or "",
        notes=_notes(panels, array.shape, what, span, packed, outline_means),
        theme=theme,
        bar=grid.bar_words(scale, words),
        height=_height(panels) + label_room(fig.layout.xaxis),
        top=56 if len(names) == 1 else 80,
        least_width=_least_width(panels),
    )


def _notes(
    panels: Panels,
    shape: tuple[int, ...],
    what: str,
    span: tuple[float, float],
    packed: int,
    outline_means: str,
) -> list[str]:
    narrowed = what == "probability" and span[1] < 1
    return [
        _pooled_note(panels, shape),
        f"colours end at {span[1]:.2g}, not at 1" if narrowed else "",
        f"{some(packed, 'cell')} in steps of 1/255 of the scale" if packed else "",
        f"outlined: {outline_means}" if panels.outline.any() else "",
        grid.missing_note(np.where(panels.missing, np.nan, 0)),
        grid.clipped_note(np.nan_to_num(panels.values), span),
    ]


def _span(panels: Panels, what: str, full_range: bool) -> tuple[float, float]:
    fixed = scales.limits(panels.values, WHAT[what][0])
    if full_range or what != "probability":
        return fixed
    return 0.0, float(np.nanmax(panels.values, initial=1e-6))


def _draw(
    panels: Panels,
    names: list[str],
    places: tuple[list[int], list[int]],
    labels: Sequence[str] | None,
    scale: str,
    span: tuple[float, float],
) -> tuple[Figure, int]:
    count = len(names)
    across = _across(count)
    down = -(-count // across)
    titles = [escape(n) for n in names] if count > 1 else None
    fig = Figure()
    make_subplots(
        down,
        across,
        figure=fig,
        subplot_titles=titles,
        horizontal_spacing=0.16 / across,
        vertical_spacing=0.22 / down,
    )
    packed = max(panels.masked.shape) > LARGEST_FLOAT_MAP
    codes = pack(panels.values, *span) if packed else None
    for i, name in enumerate(names):
        axes = grid.subplot(i)
        values = panels.values[i] if codes is None else codes.codes[i]
        fig.add_trace(_map(values, panels.masked, name, axes, codes and (codes.low, codes.high)))
        fig.add_traces(grid.hatch(panels.masked, "not visible", missing=False, axes=axes))
        fig.add_traces(grid.hatch(panels.missing[i], "not a number", missing=True, axes=axes))
    ticks = {} if codes is None else codes.ticks
    ends = span if codes is None else (0, 255)
    fig.update_layout(coloraxis=grid.coloraxis(scale, ends, **ticks))
    _axes(fig, panels, places, labels, count)
    return fig, 0 if codes is None else codes.codes.size


def _map(
    values: np.ndarray,
    masked: np.ndarray,
    name: str,
    axes: grid.Axes,
    ends: tuple[float, float] | None,
) -> go.Heatmap:
    numbers = {"y": "query", "x": "key", "z": "weight"}
    trace = grid.colors(values, numbers=numbers, series=name, masked=masked, ends=ends, axes=axes)
    number = "%{z:.3f}" if ends is None else "%{z} of 255"
    hover = f"query %{{y}}<br>→ key %{{x}}<br><b>{number}</b><extra>{escape(name)}</extra>"
    return trace.update(hovertemplate=hover, hoverinfo=None, name=escape(name))


def _axes(
    fig: go.Figure,
    panels: Panels,
    places: tuple[list[int], list[int]],
    labels: Sequence[str] | None,
    count: int,
) -> None:
    rows, columns = panels.masked.shape
    y = token_axis(
        labels, places[0], "query (first on top)", down=True, per_cell=panels.per_cell[0]
    )
    x = token_axis(labels, places[1], "key (looked at)", per_cell=panels.per_cell[1])
    most = MOST_NAMED if count == 1 else 12
    crowded = max(rows, columns) > most
    fig.update_yaxes({**y, "constraintoward": "top", "showticklabels": not crowded})
    fig.update_xaxes({**x, "constraintoward": "left", "showticklabels": not crowded})
    for i in range(count):
        key = "" if i == 0 else str(i + 1)
        fig.update_layout({f"yaxis{key}": {"scaleanchor": f"x{key}"}})
        if i % _across(count):
            fig.update_layout({f"yaxis{key}": {"title": {"text": ""}}})
    if crowded and count == 1:
        fig.update_layout(xaxis2=thinned(x, "x"), yaxis2=thinned(y, "y"))
        fig.update_layout(xaxis_title_text="", yaxis_title_text="")
        fig.update_layout(xaxis2={"anchor": "y"}, yaxis2={"anchor": "x"})
        fig.add_trace(
            go.Scatter(x=[0], y=[0], opacity=0, hoverinfo="skip", **grid.on(("x2", "y2")))
        )
        fig.update_traces(selector={"xaxis": "x2"}, showlegend=False, name="ticks")


def _outlines(panels: Panels, why: str, count: int) -> list[go.Scatter]:
    return [
        trace
        for i in range(count)
        for trace in grid.outlines(panels.outline, why, grid.subplot(i), legend=False)
    ]


def _across(count: int) -> int:
    return int(np.ceil(np.sqrt(count)))


def _height(panels: Panels) -> int:
    count, rows, columns = panels.values.shape
    if count > 1:
        across = _across(count)
        return (720 // across - 20) * -(-count // across)
    side = int(np.clip(17 * max(rows, columns), 200, 600))
    return max(30, side * rows // max(rows, columns))


def _least_width(panels: Panels) -> int:
    return 640 if len(panels.values) > 1 else min(640, 160 + 14 * panels.values.shape[2])


def _pooled_note(panels: Panels, shape: tuple[int, ...]) -> str:
    rows, columns = panels.per_cell
    if rows == columns == 1:
        return ""
    _, tall, wide = panels.values.shape
    return (
        f"max-pooled {shape[1]:,} × {shape[2]:,} → {tall:,} × {wide:,}: "
        f"each cell is the largest of {rows} × {columns}"
    )


def _alt(array: np.ndarray, panels: Panels, names: list[str], what: str, outline_means: str) -> str:
    heads, rows, columns = array.shape
    words = f"{sentence(WHAT[what][1])} of {some(rows, 'query').replace('querys', 'queries')} "
    words += f"over {some(columns, 'key')}"
    words += f", {heads} heads." if heads > 1 else "."
    if what == "probability" and panels.per_cell == (1, 1) and panels.outline.any():
        rows_with = panels.outline.any(axis=1)
        share = np.where(panels.outline, np.nan_to_num(array), 0).sum(-1)[:, rows_with].mean(-1)
        found = [f"{n} {s:.2f}".strip() for n, s in zip(names, share, strict=True)]
        words += f" Mean share in the outlined cells ({outline_means}): {', '.join(found)}."
    missing = int(panels.missing.sum())
    return words + (f" {some(missing, 'cell')} without a number." if missing else "")
