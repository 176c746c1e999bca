"""One number a head: the L×H mosaic, two of them on one scale, and how they came to be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from plotly.subplots import make_subplots

from interp.plots import grid, scales
from interp.plots.arrays import Numbers, as_floats, as_mask, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.text import escape, listing, rounded, sentence

NEAR_UNIFORM = 0.9
ROW, CELL = 46, 44  # pixels: a layer; a head whose number can be read

QUESTIONS = {
    "flow": "Which heads have a large {name}?",
    "signed": "Which heads have a large {name}?",
    "score": "Which heads have a high {name}?",
    "entropy": "Which heads attend almost uniformly?",
    "probability": "Which heads have a high {name}?",
    "loss": "Which heads have a high {name}?",
    "amount": "Which heads have a large {name}?",
    "effect": "Which heads does the model need?",
    "difference": "Which heads differ?",
    "patch": "Which heads carry the answer?",
}


def head_heatmap(
    values: Numbers,
    *,
    kind: scales.Kind = "score",
    name: str | None = None,
    title: str | None = None,
    threshold: float | None = None,
    ring: Numbers | None = None,
    limits: tuple[float, float] | None = None,
    selected: tuple[int, int] | None = None,
    formula: str = "",
    theme: str = "light",
) -> Figure:
    """The mosaic of all heads: layer down (L0 on top), head across.

    Args:
        values: one number a head, [L H]. NaN is crossed out and counted, never drawn as 0.
        kind: what the numbers are; it decides colours and range (see `scales.SCALES`).
        name: the quantity in words, for the colour bar.
        title: the question asked; None: one that fits the kind.
        threshold: heads at or over it are ringed (0.9 for entropies). NaN never is.
        ring: instead of a threshold, a bool [L H].
        limits: the ends of the colour scale, where the kind's are not wanted.
        selected: a (layer, head) to outline.
        formula: how the numbers are made, for whoever asks.
        theme: "light" or "dark".

    Raises:
        ValueError: a shape, a range or a combination that can't be drawn; the message says which.
    """
    array = as_floats(values)
    need_shape(array, "layer head", "values")
    name = name or scales.scale_of(kind).bar
    ringed, why = _rings(array, kind, threshold, ring)
    span = scales.limits(array, kind, given=limits)
    layout = {
        "coloraxis": grid.coloraxis(kind, span),
        "xaxis": grid.counted_axis(array.shape[1], "head", prefix="H"),
        "yaxis": grid.counted_axis(array.shape[0], "layer (first on top)", prefix="L", down=True),
        "hoverdistance": -1,
    }
    traces = _mosaic(array, kind, span, name, ringed) + grid.selection(selected, array.shape)
    notes = [why, grid.missing_note(array), grid.clipped_note(array, span)]
    return finish(
        Figure(traces, layout),
        question=title or QUESTIONS[kind].format(name=name),
        alt=mosaic_alt(array, name, ringed, why),
        formula=formula,
        sign=scales.scale_of(kind).sign or "",
        notes=notes,
        theme=theme,
        height=max(150, ROW * min(len(array), 16) + 60),
        bar=grid.bar_words(kind, name),
        least_width=80 + CELL * min(array.shape[1], 16),
    )


def _rings(
    values: np.ndarray, kind: str, threshold: float | None, ring: Numbers | None
) -> tuple[np.ndarray, str]:
    if ring is not None and threshold is not None:
        raise ValueError("pass a threshold or a ring mask, not both")
    if ring is not None:
        mask = as_mask(ring, values.shape, "ring")
        return mask, f"ringed: {some(int(mask.sum()), 'head')}"
    if threshold is None and kind == "entropy":
        threshold = NEAR_UNIFORM
    if threshold is None:
        return np.zeros(values.shape, bool), ""
    mask = values >= threshold
    word = "near-uniform, " if kind == "entropy" else ""
    return mask, f"ringed: {word}{threshold:g} or more ({some(int(mask.sum()), 'head')})"


def _mosaic(
    values: Float[np.ndarray, "layer head"],
    kind: str,
    span: tuple[float, float],
    name: str,
    ringed: np.ndarray,
    axes: grid.Axes = grid.ROOT,
    series: str = "",
) -> list[Any]:
    few = max(values.shape) <= 16
    side = 38 if values.shape[1] <= 12 else 28  # of a ring: it has to fit a cell
    numbers = {"x": "head", "y": "layer", "z": name}
    clipped = scales.beyond(values, span)
    ring = {"symbol": "square-open", "size": side} if few else {"symbol": "circle-open", "size": 16}
    return [
        grid.colors(values, numbers=numbers, series=series, axes=axes),
        *grid.hatch(np.isnan(values), "not a number", missing=True, axes=axes),
        *grid.marks(ringed, "ringed", axes=axes, **ring),
        *grid.marks(clipped & ~few, "beyond the scale", symbol="diamond", axes=axes),
        grid.targets(
            hovers(head_names(values), name, values),
            values.shape[1],
            axes,
        ),
        *(_words(values, kind, span, axes) if few else []),
    ]


def _words(values: np.ndarray, kind: str, span: tuple[float, float], axes: grid.Axes) -> list[Any]:
    plus = scales.scale_of(kind).diverging
    marks = ["◆ " if out else "" for out in scales.beyond(values, span).ravel()]
    texts = [
        "" if np.isnan(v) else mark + rounded(v, plus=plus)
        for v, mark in zip(values.ravel(), marks, strict=True)
    ]
    ink = scales.inks(values, kind, span=span)
    return grid.words(texts, values.shape[1], ink=ink, axes=axes)


def head_names(values: Float[np.ndarray, "layer head"]) -> list[str]:
    """`L0H0`, `L0H1`, … in reading order."""
    return [f"L{layer}H{head}" for layer, head in np.ndindex(values.shape)]


def hovers(places: Sequence[str], name: str, values: np.ndarray) -> list[str]:
    """What is read at each cell: the place, the quantity, its number or that there is none."""
    numbers = ["is not a number" if np.isnan(v) else f"{v:.3g}" for v in values.ravel()]
    pairs = zip(places, numbers, strict=True)
    return [f"{escape(place)}<br>{escape(name)} {number}" for place, number in pairs]


def mosaic_alt(
    values: np.ndarray, name: str, ringed: np.ndarray | None = None, why: str = ""
) -> str:
    """What a map of heads shows, in words: the highest, the lowest, the ringed, the missing."""
    layers, heads = values.shape
    words = f"{sentence(name)} of {layers} × {heads} heads."
    names, flat = np.array(head_names(values)), values.ravel()
    order = [i for i in np.argsort(-flat, kind="stable") if np.isfinite(flat[i])]
    if order:
        best = listing([f"{names[i]} {flat[i]:.2f}" for i in order[:3]])
        words += f" Highest: {best}; lowest: {names[order[-1]]} {flat[order[-1]]:.2f}."
    if ringed is not None and why:
        chosen = listing(list(names[ringed.ravel()]), 6) or "none"
        words += f" {sentence(why)}: {chosen}."
    missing = int(np.isnan(values).sum())
    return words + (f" {some(missing, 'head')} without a number." if missing else "")


def head_comparison(
    left: Numbers,
    right: Numbers,
    *,
    names: Sequence[str] = ("A", "B"),
    kind: scales.Kind = "score",
    name: str | None = None,
    title: str | None = None,
    limits: tuple[float, float] | None = None,
    theme: str = "light",
) -> Figure:
    """Two mosaics side by side on one colour scale; arguments as for `head_heatmap`.

    Raises:
        ValueError: they have different shapes.
    """
    pair = _pair(left, right)
    name = name or scales.scale_of(kind).bar
    span = scales.limits(pair, kind, given=limits)
    fig = Figure()
    make_subplots(1, 2, subplot_titles=[escape(n) for n in names], figure=fig)
    layers, heads = pair[0].shape
    for i, (array, series) in enumerate(zip(pair, names, strict=True)):
        ringed = _rings(array, kind, None, None)[0]
        fig.add_traces(_mosaic(array, kind, span, name, ringed, grid.subplot(i), series))
    fig.update_xaxes(grid.counted_axis(heads, "head", prefix="H", most=12))
    fig.update_yaxes(grid.counted_axis(layers, "layer (first on top)", prefix="L", down=True))
    fig.update_layout(coloraxis=grid.coloraxis(kind, span), yaxis2_title_text="", hoverdistance=-1)
    return finish(
        fig,
        question=title or f"How does the {name} of the heads compare?",
        alt=" ".join(f"{n}: {mosaic_alt(a, name)}" for n, a in zip(names, pair, strict=True)),
        sign=scales.scale_of(kind).sign or "",
        notes=[
            _rings(pair, kind, None, None)[1],
            grid.missing_note(pair),
            grid.clipped_note(pair, span),
        ],
        theme=theme,
        height=max(150, ROW * min(layers, 16) + 60),
        top=72,
        bar=grid.bar_words(kind, name),
    )


def _pair(left: Numbers, right: Numbers) -> Float[np.ndarray, "map layer head"]:
    pair = [as_floats(left), as_floats(right)]
    for array in pair:
        need_shape(array, "layer head", "values")
    if pair[0].shape != pair[1].shape:
        raise ValueError(
            f"to compare heads, both maps need one shape, not {list(pair[0].shape)} and "
            f"{list(pair[1].shape)}; choose runs with the same layers and heads"
        )
    return np.stack(pair)


def head_difference(
    left: Numbers,
    right: Numbers,
    *,
    names: Sequence[str] = ("A", "B"),
    name: str = "score",
    title: str | None = None,
    theme: str = "light",
) -> Figure:
    """`right − left` for every head, on a scale centred on zero: blue where `right` is higher."""
    a, b = _pair(left, right)
    return head_heatmap(
        b - a,
        kind="difference",
        name=f"{name}, {names[1]} − {names[0]}",
        title=title or f"Which heads changed from {names[0]} to {names[1]}?",
        formula=f"{names[1]} − {names[0]}",
        theme=theme,
    )
