"""Pairs of heads: what both are worth together, less what each is worth alone."""

from collections.abc import Sequence

import numpy as np

from interp.plots import grid, scales
from interp.plots.arrays import Numbers, as_floats, need_shape
from interp.plots.figure import Figure, finish
from interp.plots.heads import CELL, hovers
from interp.plots.text import listing, rounded

MOST_WORDS = 16  # heads whose numbers are written in the cells
SIGN = (
    "blue = positive: they back each other up; red = negative: each needs the other (one circuit)"
)
FORMULA = "loss without both − loss without one − loss without the other + loss as it is"


def interaction_heatmap(
    values: Numbers,
    names: Sequence[str],
    *,
    name: str = "interaction in nats",
    title: str = "Which heads back each other up, and which need each other?",
    formula: str = FORMULA,
    theme: str = "light",
) -> Figure:
    """A row and a column a head, a cell a pair; symmetric, without a diagonal.

    Args:
        values: [N N], the joint effect of both less the effects of each. NaN off the diagonal is
            crossed out and counted.
        names: the heads.
        name: the quantity, for the colour bar.
        title: the question asked.
        formula: how the numbers are made.
        theme: "light" or "dark".

    Raises:
        ValueError: the matrix is not square, or has another size than there are names.
    """
    array = as_floats(values)
    need_shape(array, "head other", "values")
    if array.shape != (len(names), len(names)):
        raise ValueError(f"{len(names)} heads need a square of as many, not {list(array.shape)}")
    itself = np.eye(len(names), dtype=bool)
    shown = np.where(itself, np.nan, array)
    fig = _cells(shown, itself, list(names), name)
    pairs = shown[np.triu_indices(len(names), 1)]
    return finish(
        fig,
        question=title,
        alt=_alt(shown, list(names), name),
        formula=formula,
        sign=SIGN,
        notes=[
            SIGN,
            grid.missing_note(pairs, "pair"),
            grid.clipped_note(pairs, scales.limits(shown, "signed")),
        ],
        theme=theme,
        bar=grid.bar_words("signed", name),
        height=int(np.clip(34 * len(names), 180, 620)) + 60,
        least_width=110 + CELL * min(len(names), MOST_WORDS),
    )


def _cells(shown: np.ndarray, itself: np.ndarray, names: list[str], name: str) -> Figure:
    span = scales.limits(shown, "signed")
    places = [f"{a} and {b}" for a in names for b in names]
    numbers = {"y": "head", "x": "other", "z": name}
    fig = Figure([grid.colors(shown, numbers=numbers, masked=itself)])
    fig.add_traces(grid.hatch(itself, "the head itself", missing=False))
    fig.add_traces(grid.hatch(np.isnan(shown) & ~itself, "not a number", missing=True))
    fig.add_trace(grid.targets(hovers(places, name, shown), len(names)))
    few = len(names) <= MOST_WORDS
    beyond = scales.beyond(shown, span)
    if few:
        fig.add_traces(_words(shown, beyond, span))
    else:
        fig.add_traces(grid.marks(beyond, "beyond the scale", symbol="diamond"))
    fig.update_layout(
        coloraxis=grid.coloraxis("signed", span),
        xaxis=_axis(names, "head"),
        yaxis=_axis(names, "other head", down=True),
        hoverdistance=-1,
    )
    return fig


def _words(shown: np.ndarray, beyond: np.ndarray, span: tuple[float, float]) -> list:
    texts = [
        "" if np.isnan(v) else ("◆ " if out else "") + rounded(v, plus=True)
        for v, out in zip(shown.ravel(), beyond.ravel(), strict=True)
    ]
    return grid.words(texts, len(shown), ink=scales.inks(shown, "signed", span=span))


def _axis(names: list[str], title: str, *, down: bool = False) -> dict:
    every = max(1, -(-len(names) // 32))
    ticks = {"tickmode": "array", "tickvals": list(range(0, len(names), every))}
    return grid.counted_axis(len(names), title, down=down) | ticks | {"ticktext": names[::every]}


def _alt(shown: np.ndarray, names: list[str], name: str) -> str:
    rows, columns = np.triu_indices(len(names), 1)
    values = shown[rows, columns]
    order = [i for i in np.argsort(-np.abs(values)) if np.isfinite(values[i])]
    largest = [f"{names[rows[i]]} and {names[columns[i]]} {values[i]:+.2f}" for i in order[:3]]
    words = f"{name} of {len(values)} pairs; largest by size: {listing(largest) or 'none'}."
    return words[0].upper() + words[1:]
