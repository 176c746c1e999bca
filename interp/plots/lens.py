"""Layers × positions: what the residual stream already says, and where a patch restores it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from interp.plots import grid, scales
from interp.plots.arrays import Numbers, as_floats, need_shape
from interp.plots.figure import Figure, finish
from interp.plots.heads import hovers
from interp.plots.text import escape, sentence
from interp.plots.tokens import (
    MOST_LABELS,
    check_labels,
    label_room,
    label_width,
    thinned,
    token_axis,
    token_labels,
)

ROW, ROW_NAMES = 30, 40  # pixels: a row; its name, over that of a number
CHARACTERS = 80  # that fit side by side in a row of cells


def logit_lens(
    values: Numbers,
    words: Sequence[Sequence[str]],
    *,
    labels: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    kind: scales.Kind = "probability",
    name: str = "probability of the true next token",
    title: str = "When does the model know the next token?",
    theme: str = "light",
) -> Figure:
    """A row a layer (first on top), a column a position; in each cell the token it would predict.

    Args:
        values: [L T], what the colour is.
        words: the top token of each cell, L lists of T.
        labels: the T tokens read; None: bare positions.
        layers: names of the L rows; None: L0, L1, …
        kind: what the values are (see `scales.SCALES`).
        name: the same in words.
        title: the question asked.
        theme: "light" or "dark".

    Raises:
        ValueError: shapes that differ.
    """
    array = as_floats(values)
    need_shape(array, "layer position", "values")
    if [len(row) for row in words] != [array.shape[1]] * len(array):
        raise ValueError(f"words are {array.shape[0]} lists of {array.shape[1]} tokens")
    flat = [word for row in words for word in row]
    fits = CHARACTERS // array.shape[1]
    shown = token_labels(flat, width=min(fits, 10)) if fits >= 3 else None
    fig = _map(array, kind, name, labels, layers, shown=shown, read=flat)
    last = np.flatnonzero(np.isfinite(array[-1]))
    final = f"{array[-1, last].mean():.2f}" if last.size else "without numbers"
    return finish(
        fig,
        question=title,
        alt=f"{sentence(name)} over {array.shape[0]} layers and {array.shape[1]} positions; "
        f"mean in the last layer {final}.",
        formula="softmax(W_U · norm(residual stream after the layer))",
        notes=["" if shown else "hover a cell for its token", grid.missing_note(array)],
        theme=theme,
        bar=grid.bar_words(kind, name),
        height=ROW * len(array) + label_room(fig.layout.xaxis),
        least_width=ROW_NAMES + label_width(len(fig.layout.xaxis.ticktext)),
    )


def patching_heatmap(
    values: Numbers,
    *,
    labels: Sequence[str] | None = None,
    across: str = "position",
    layers: Sequence[str] | None = None,
    normalized: bool = True,
    name: str | None = None,
    title: str = "Where does a patch bring the answer back?",
    theme: str = "light",
) -> Figure:
    """Effect of patching each place: a row a layer (first on top), a column a position or head.

    Args:
        values: [L T] or [L H].
        labels: the tokens of the columns.
        across: what a column is, in words.
        layers: names of the rows.
        normalized: 0 is the corrupted run and 1 the clean one, on a fixed [−1, 1] (what lies
            beyond is marked); False: an effect in its own unit, on a scale symmetric about 0.
        name: the quantity, for the colour bar.
        title: the question asked.
        theme: "light" or "dark".
    """
    array = as_floats(values)
    need_shape(array, f"layer {across}", "values")
    kind = "patch" if normalized else "difference"
    words = name or ("normalised effect" if normalized else "change of the metric")
    fig = _map(array, kind, words, labels, layers, across=across)
    span = scales.limits(array, kind)
    good = np.isfinite(array)
    best = np.unravel_index(np.argmax(np.where(good, array, -np.inf)), array.shape)
    return finish(
        fig,
        question=title,
        alt=f"{sentence(words)} over {array.shape[0]} layers; largest {array[best]:.2f} "
        f"at layer {best[0]}, {across} {best[1]}.",
        formula="(patched − corrupted) / (clean − corrupted)" if normalized else words,
        sign=scales.scale_of(kind).sign or "",
        notes=[grid.missing_note(array), grid.clipped_note(array, span)],
        theme=theme,
        bar=grid.bar_words(kind, words),
        height=ROW * len(array) + label_room(fig.layout.xaxis),
        least_width=ROW_NAMES + label_width(len(fig.layout.xaxis.ticktext)),
    )


def _map(
    array: np.ndarray,
    kind: scales.Kind,
    name: str,
    labels: Sequence[str] | None,
    layers: Sequence[str] | None,
    *,
    across: str = "position",
    shown: list[str] | None = None,
    read: Sequence[str] | None = None,
) -> Figure:
    rows, columns = array.shape
    check_labels(labels, columns)
    names = list(layers or [f"L{layer}" for layer in range(rows)])
    if len(names) != rows:
        raise ValueError(f"{rows} layers need as many names, not {len(names)}")
    span = scales.limits(array, kind)
    numbers = {"x": across, "y": "layer", "z": name}
    places = [f"{layer}, {across} {c}" for layer in names for c in range(columns)]
    hover = hovers(places, name, array)
    if read is not None:
        hover = [f"{h}<br>says {t}" for h, t in zip(hover, token_labels(read), strict=True)]
    traces = [
        grid.colors(array, numbers=numbers),
        *grid.hatch(np.isnan(array), "not a number", missing=True),
        *grid.marks(scales.beyond(array, span), "beyond", symbol="diamond"),
        grid.targets(hover, columns),
    ]
    if shown:
        ink = scales.inks(array, kind, span=span)
        traces += grid.words(shown, columns, ink=ink, size=10)
    axes = {"xaxis": _across(labels, columns, across), "yaxis": _down(names)}
    return Figure(traces, axes | {"coloraxis": grid.coloraxis(kind, span), "hoverdistance": -1})


def _across(labels: Sequence[str] | None, columns: int, across: str) -> dict[str, Any]:
    axis = token_axis(labels, range(columns), escape(across))
    if columns <= MOST_LABELS:
        return axis
    few = thinned(axis, "x")
    return axis | {"tickvals": few["tickvals"], "ticktext": few["ticktext"]}


def _down(names: list[str]) -> dict[str, Any]:
    axis = grid.counted_axis(len(names), "layer (first on top)", down=True)
    every = max(1, -(-len(names) // 24))
    ticks = {"tickmode": "array", "tickvals": list(range(0, len(names), every))}
    return axis | ticks | {"ticktext": [escape(name) for name in names[::every]]}
