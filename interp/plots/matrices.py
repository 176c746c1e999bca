"""Weights: QK and OV matrices, their spectra, and which heads compose."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
import torch

from interp.plots import grid, scales, theme
from interp.plots.arrays import Numbers, as_floats, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.heads import head_names, hovers
from interp.plots.pooling import LARGEST_FLOAT_MAP, pool_factor
from interp.plots.text import listing
from interp.plots.tokens import MOST_LABELS, check_labels, label_width, thinned, token_axis

Composition = Literal["Q", "K", "V"]


def matrix_heatmap(
    values: Numbers,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    row_axis: str = "row",
    column_axis: str = "column",
    name: str = "entry",
    title: str = "What does this matrix do?",
    formula: str = "",
    theme: str = "light",
) -> Figure:
    """Any matrix of weights, on a scale symmetric about 0; row 0 on top.

    Above 256 rows or columns each cell shows the entry of largest size in its block, with its
    sign, and the note under the title says so.

    Args:
        values: [R C].
        rows: tokens that name the rows; None: numbers.
        columns: tokens that name the columns.
        row_axis: what a row is, in words: "query token".
        column_axis: what a column is: "key token".
        name: what an entry is, for the colour bar.
        title: the question asked.
        formula: how the matrix is made.
        theme: "light" or "dark".
    """
    array = as_floats(values)
    need_shape(array, "row column", "values")
    check_labels(rows, array.shape[0])
    check_labels(columns, array.shape[1])
    block = tuple(pool_factor(n, LARGEST_FLOAT_MAP) for n in array.shape)
    pooled = largest_of(array, *block)
    span = scales.limits(array, "signed")
    numbers = {"x": column_axis, "y": row_axis, "z": name}
    trace = grid.colors(pooled, numbers=numbers)
    trace.update(hoverinfo=None, hovertemplate="%{y} → %{x}<br><b>%{z:.3f}</b><extra></extra>")
    fig = Figure([trace, *grid.hatch(np.isnan(pooled), "not a number", missing=True)])
    fig.update_layout(
        coloraxis=grid.coloraxis("signed", span),
        xaxis=_named(columns, array.shape[1], column_axis, block[1]),
        yaxis=_named(rows, array.shape[0], f"{row_axis} (first on top)", block[0], down=True),
    )
    return finish(
        fig,
        question=title,
        alt=_matrix_alt(array, name),
        formula=formula,
        sign=scales.SCALES["signed"].sign or "",
        notes=[_pooled(array.shape, pooled.shape, block), grid.missing_note(array)],
        theme=theme,
        bar=grid.bar_words("signed", name),
        height=int(np.clip(16 * len(pooled), 160, 560)) + 90,
    )


def largest_of(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The entry of largest size in each block, with its sign."""
    if rows == columns == 1:
        return values
    height, width = values.shape
    full = np.full((-(-height // rows) * rows, -(-width // columns) * columns), np.nan, np.float32)
    full[:height, :width] = values
    blocks = full.reshape(len(full) // rows, rows, -1, columns).swapaxes(1, 2)
    blocks = blocks.reshape(*blocks.shape[:2], -1)
    sizes = np.where(np.isnan(blocks), -1, np.abs(blocks))
    return np.take_along_axis(blocks, sizes.argmax(-1)[..., None], axis=-1)[..., 0]


def _named(
    labels: Sequence[str] | None, count: int, title: str, block: int, *, down: bool = False
) -> dict[str, Any]:
    axis = token_axis(labels, range(count), title, down=down, per_cell=block)
    if len(axis["ticktext"]) <= MOST_LABELS:
        return axis
    few = thinned(axis, "x")
    return axis | {"tickvals": few["tickvals"], "ticktext": few["ticktext"]}


def _pooled(full: tuple[int, ...], small: tuple[int, ...], block: tuple[int, ...]) -> str:
    if block == (1, 1):
        return ""
    return (
        f"{full[0]:,} × {full[1]:,} → {small[0]:,} × {small[1]:,}: each cell is the largest "
        f"entry, by size, of {block[0]} × {block[1]}"
    )


def _matrix_alt(array: np.ndarray, name: str) -> str:
    words = f"{name} of a {array.shape[0]:,} × {array.shape[1]:,} matrix"
    if not np.isfinite(array).any():
        return f"{words}; no numbers."
    words += f", from {np.nanmin(array):.2f} to {np.nanmax(array):.2f}"
    diagonal = np.diagonal(array)
    if array.shape[0] == array.shape[1] and np.isfinite(diagonal).any():
        words += (
            f"; mean on the diagonal {np.nanmean(diagonal):.2f}, overall {np.nanmean(array):.2f}"
        )
    return words + "."


def spectrum(
    values: Numbers,
    *,
    name: str | None = None,
    title: str | None = None,
    theme: str = "light",
) -> Figure:
    """Singular values in order, as bars; or complex eigenvalues, as points of the plane.

    Args:
        values: [N], real or complex.
        name: what they are; None: singular values if real, eigenvalues if complex.
        title: the question asked.
        theme: "light" or "dark".
    """
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
    plane = np.asarray(array).dtype.kind == "c"
    array = np.asarray(array, np.complex128 if plane else np.float64)
    need_shape(array, "value", "values")
    name = name or ("eigenvalue" if plane else "singular value")
    first = float(np.abs(array).max() ** 2 / max((np.abs(array) ** 2).sum(), 1e-30))
    words = f"the largest {name} holds {first:.0%} of the squared sum"
    if plane:
        words = f"Σλ / Σ|λ| = {np.real(array).sum() / max(np.abs(array).sum(), 1e-30):+.2f}"
    asked = "Does this head copy?" if plane else "How many directions does this matrix use?"
    return finish(
        _plane(array, name) if plane else _ordered(as_floats(array), name),
        question=title or asked,
        alt=f"{some(len(array), name)}; {words}.",
        formula="Σλ / Σ|λ| is 1 for a matrix that only copies, −1 for one that only suppresses"
        if plane
        else "",
        notes=[words],
        theme=theme,
        height=280,
    )


def _ordered(values: np.ndarray, name: str) -> Figure:
    order = -np.sort(-values)
    colors = [theme.POSITIVE if v >= 0 else theme.NEGATIVE for v in order]
    bars = go.Bar(x=np.arange(len(order)), y=order, marker={"color": colors}, showlegend=False)
    bars.update(
        hovertemplate=f"{name} %{{x}}<br>%{{y:.4g}}<extra></extra>",
        meta={"numbers": {"x": "rank", "y": name}},
    )
    fig = Figure([bars])
    fig.update_layout(xaxis_title_text="rank", yaxis_title_text=name, bargap=0.15)
    return fig


def _plane(values: np.ndarray, name: str) -> Figure:
    real, imaginary = np.real(values), np.imag(values)
    marker = {"size": 9, "opacity": 0.75, "symbol": ["circle" if r >= 0 else "x" for r in real]}
    marker["color"] = [theme.POSITIVE if r >= 0 else theme.NEGATIVE for r in real]
    points = go.Scatter(x=real, y=imaginary, mode="markers", marker=marker, showlegend=False)
    points.update(
        hovertemplate="%{x:.4g} + %{y:.4g} i<extra></extra>",
        meta={"numbers": {"x": "real", "y": "imaginary"}},
    )
    fig = Figure([points])
    fig.update_xaxes(title_text=f"real part of the {name}", zeroline=True)
    fig.update_yaxes(title_text="imaginary part", zeroline=True, scaleanchor="x")
    return fig


def composition_heatmap(
    scores: Numbers,
    *,
    kind: Composition = "K",
    threshold: float | None = None,
    baseline: float | None = None,
    title: str | None = None,
    theme: str = "light",
) -> Figure:
    """How much each head (column) reads, through its Q, K or V, what each earlier one (row) writes.

    Pairs that can't compose (the reader is not in a later layer) are hatched. Pairs at or over
    the threshold are ringed, and the note says which share of all scores they hold.

    Args:
        scores: [L H L H], writer then reader.
        kind: through which input the reader reads.
        threshold: ring from here.
        baseline: what random matrices of these shapes score, for the note.
        title: the question asked.
        theme: "light" or "dark".
    """
    array = as_floats(scores)
    need_shape(array, "layer head layer head", "scores")
    flat, possible = pairs(array)
    names = head_names(array[:, :, 0, 0])
    places = [f"{a} → {kind} of {b}" for a in names for b in names]
    colors = "signed" if (flat[possible] < 0).any() else "amount"  # was a baseline taken off?
    strong = possible & (flat >= threshold) if threshold is not None else np.zeros_like(possible)
    shown = np.where(possible, flat, np.nan)
    rings = grid.marks(strong, "at or over the threshold", symbol="circle-open", size=17)
    layout = {
        "coloraxis": grid.coloraxis(colors, scales.limits(shown, colors)),
        "hoverdistance": -1,
        "xaxis": _heads_axis(names, "head that reads"),
        "yaxis": _heads_axis(names, "head that writes (first on top)", down=True),
    }
    return finish(
        Figure([*_pair_map(shown, possible, places), *rings], layout),
        question=title or f"Which heads feed the {kind} of which?",
        alt=f"{kind}-composition; strongest: {_strongest(flat, possible, places)}.",
        formula="‖W_A W_B‖ / (‖W_A‖ ‖W_B‖), Frobenius norms",
        notes=[
            kept_note(flat[possible], threshold),
            f"random matrices score {baseline:.2f}" if baseline is not None else "",
            grid.missing_note(flat[possible], "pair"),
        ],
        theme=theme,
        bar=grid.bar_words(colors, f"{kind}-composition score"),
        height=int(np.clip(24 * len(names), 180, 620)) + 80,
        least_width=label_width(len(layout["xaxis"]["ticktext"])),
    )


def _pair_map(shown: np.ndarray, possible: np.ndarray, places: list[str]) -> list[Any]:
    numbers = {"y": "writer", "x": "reader", "z": "score"}
    return [
        grid.colors(shown, numbers=numbers, masked=~possible),
        *grid.hatch(~possible, "can't compose", missing=False),
        *grid.hatch(possible & np.isnan(shown), "not a number", missing=True),
        grid.targets(hovers(places, "score", shown), len(shown)),
    ]


def _strongest(flat: np.ndarray, possible: np.ndarray, places: list[str]) -> str:
    order = np.argsort(-np.where(possible & np.isfinite(flat), flat, -np.inf), axis=None)
    good = (possible & np.isfinite(flat)).ravel()
    return listing([f"{places[i]} {flat.ravel()[i]:.2f}" for i in order[:3] if good[i]])


def pairs(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores as writer × reader, and which pairs can compose: the reader's layer is later."""
    layers, heads = scores.shape[:2]
    layer = np.repeat(np.arange(layers), heads)
    return scores.reshape(layers * heads, layers * heads), layer[:, None] < layer[None, :]


def kept_note(weights: np.ndarray, threshold: float | None) -> str:
    """How many weights reach the threshold, and the share of all that they hold."""
    if threshold is None:
        return ""
    sizes = np.abs(np.nan_to_num(weights))
    kept = sizes[sizes >= threshold]
    share = kept.sum() / sizes.sum() if sizes.sum() else 0.0
    return f"{kept.size} of {sizes.size} at {threshold:g} or more, {share:.0%} of the total"


def _heads_axis(names: list[str], title: str, *, down: bool = False) -> dict[str, Any]:
    every = max(1, -(-len(names) // 32))
    ticks = {"tickmode": "array", "tickvals": list(range(0, len(names), every))}
    axis = grid.counted_axis(len(names), title, down=down) | ticks
    return axis | {"ticktext": names[::every], "tickangle": 0 if down else -90}
