"""When each head forms: all heads over the checkpoints of a run, as one map."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from interp.plots import grid, scales
from interp.plots.arrays import Numbers, as_floats, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.heads import head_names, hovers, mosaic_alt


def heads_by_step(
    values: Numbers,
    steps: Sequence[int],
    *,
    kind: scales.Kind = "score",
    name: str | None = None,
    title: str | None = None,
    limits: tuple[float, float] | None = None,
    theme: str = "light",
) -> Figure:
    """Every head over training: a row a head (L0H0 on top), a column a checkpoint.

    Args:
        values: [S L H], one map a checkpoint.
        steps: the S steps they were taken at; columns are evenly spaced whatever they are.
        kind: as for `head_heatmap`, like the others.
        name: the quantity in words.
        title: the question asked.
        limits: the ends of the colour scale.
        theme: "light" or "dark".

    Raises:
        ValueError: another number of steps than maps.
    """
    array = as_floats(values)
    need_shape(array, "step layer head", "values")
    if len(steps) != len(array):
        raise ValueError(f"{len(array)} maps need as many steps, not {len(steps)}")
    name = name or scales.scale_of(kind).bar
    rows = array.reshape(len(array), -1).T
    names = head_names(array[0])
    span = scales.limits(array, kind, given=limits)
    places = [f"{head} at step {step:,}" for head in names for step in steps]
    traces = [
        grid.colors(rows, numbers={"x": "step", "y": "head", "z": name}),
        *grid.hatch(np.isnan(rows), "not a number", missing=True),
        grid.targets(hovers(places, name, rows), len(steps)),
    ]
    at = [f"{s:,}" for s in steps]
    layout = {
        "coloraxis": grid.coloraxis(kind, span),
        "xaxis": _ticks(at, "training step (one column a checkpoint)", 12),
        "yaxis": _ticks(names, "head (first layer on top)", 24, down=True),
        "hoverdistance": -1,
    }
    last = mosaic_alt(array[-1], name)
    return finish(
        Figure(traces, layout),
        question=title or "When does each head form?",
        alt=f"{name} over {some(len(steps), 'checkpoint')}. At step {steps[-1]}: {last}",
        sign=scales.scale_of(kind).sign or "",
        notes=[grid.missing_note(array), grid.clipped_note(array, span)],
        theme=theme,
        height=max(180, min(620, 20 * len(names) + 80)),
        bar=grid.bar_words(kind, name),
    )


def _ticks(labels: Sequence[str], title: str, most: int, *, down: bool = False) -> dict[str, Any]:
    every = max(1, -(-len(labels) // most))
    shown = range(0, len(labels), every)
    axis = grid.counted_axis(len(labels), title, down=down)
    return axis | {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [labels[i] for i in shown],
    }
