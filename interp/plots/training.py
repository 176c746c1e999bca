"""What happened over training: losses, scores, the window in which heads form."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import plotly.graph_objects as go

from interp.plots import theme
from interp.plots.arrays import Numbers, as_floats, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.text import escape, listing, sentence

Rows = Sequence[Mapping[str, Any]]
Lines = dict[str, tuple[np.ndarray, np.ndarray]]  # steps and numbers, by name


@runtime_checkable
class HasMetrics(Protocol):
    """What a training run offers: one dict an evaluation, each with a `step`."""

    @property
    def metrics(self) -> Rows:
        """The evaluations, in order."""
        ...


def loss_curve(
    run: HasMetrics | Rows | Mapping[str, Numbers],
    *,
    window: tuple[float, float] | None = None,
    window_means: str = "heads form",
    marks: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    log_steps: bool = True,
    title: str = "How did the loss fall?",
    theme: str = "light",
) -> Figure:
    """Every loss of a run over its steps, in nats, with the window in which heads form shaded.

    Args:
        run: what has `.metrics`, or those rows, or arrays by name: `step` and all that end in
            `loss`. None in a row is what was not measured then, and has no point.
        window: first and last step of the formation.
        window_means: what is written at the window.
        marks: steps to point out, by name.
        levels: losses to compare with, by name, such as {"a blind guess": ln V}.
        log_steps: steps on a logarithmic axis (step 0 is drawn at the first step after it).
        title: the question asked.
        theme: "light" or "dark".

    Raises:
        ValueError: there is no step or no loss in it.
    """
    lines = _losses(run)
    drawn = _window(window, window_means, log_steps) + _marks(marks, levels, log_steps)
    return finish(
        _draw(lines, "loss (nats)", drawn, log_steps),
        question=title,
        alt=_alt(lines, window, window_means),
        formula="mean −ln p(target) over scored tokens",
        notes=[_gaps(lines)],
        theme=theme,
        height=300,
        top=34,
        least_width=_legend_width(lines),
    )


def scores_by_step(
    steps: Numbers,
    scores: Mapping[str, Numbers],
    *,
    name: str = "score",
    window: tuple[float, float] | None = None,
    window_means: str = "heads form",
    marks: Mapping[str, float] | None = None,
    log_steps: bool = True,
    title: str = "When do the heads form?",
    theme: str = "light",
) -> Figure:
    """One line a score over the steps; arguments as for `loss_curve`.

    Args:
        steps: [S].
        scores: [S] numbers by the name of their line.
        name: the quantity, for the axis.
        window: first and last step of the formation.
        window_means: what is written at the window.
        marks: steps to point out, by name.
        log_steps: steps on a logarithmic axis.
        title: the question asked.
        theme: "light" or "dark".
    """
    at = as_floats(steps, np.float64)
    lines = {name: _line(name, at, as_floats(values)) for name, values in scores.items()}
    drawn = _window(window, window_means, log_steps) + _marks(marks, {}, log_steps)
    return finish(
        _draw(lines, escape(name), drawn, log_steps),
        question=title,
        alt=_alt(lines, window, window_means),
        notes=[_gaps(lines)],
        theme=theme,
        height=300,
        top=34,
        least_width=_legend_width(lines),
    )


def loss_by_position(
    losses: Numbers | Mapping[str, Numbers],
    *,
    levels: Mapping[str, float] | None = None,
    title: str = "Does the model get better along the sequence?",
    theme: str = "light",
) -> Figure:
    """Mean loss at each position, in nats: one line, or one a name.

    Args:
        losses: [T], or arrays [T] by name. NaN where nothing is scored leaves a gap.
        levels: losses to compare with, by name.
        title: the question asked.
        theme: "light" or "dark".
    """
    given = losses if isinstance(losses, Mapping) else {"loss": losses}
    arrays = {name: as_floats(values) for name, values in given.items()}
    lines = {
        name: _line(name, np.arange(len(values), dtype=np.float64), values)
        for name, values in arrays.items()
    }
    drawn = _marks({}, levels, log_steps=False)
    return finish(
        _draw(lines, "mean loss (nats)", drawn, log_steps=False, unit="position"),
        question=title,
        alt=_alt(lines, None, "", unit="position"),
        notes=[_gaps(lines)],
        theme=theme,
        height=280,
        top=34,
    )


def _losses(run: HasMetrics | Rows | Mapping[str, Numbers]) -> Lines:
    rows = run.metrics if isinstance(run, HasMetrics) else run
    if isinstance(rows, Mapping):
        names = list(rows)
        rows = [dict(zip(names, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    if not rows or any("step" not in row for row in rows):
        raise ValueError("wanted metrics with a 'step' in each row; there is none yet")
    names = [name for name in dict.fromkeys(k for row in rows for k in row) if name[-4:] == "loss"]
    lines: Lines = {}
    for name in names:
        points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        if points:
            steps, values = as_floats(points, np.float64).T
            lines[name.replace("_", " ")] = steps, values
    if not lines:
        raise ValueError(f"wanted numbers whose name ends in 'loss', got {', '.join(rows[0])}")
    return lines


def _line(name: str, steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    need_shape(values, "step", name)
    if len(values) != len(steps):
        raise ValueError(f"{name} has {len(values)} numbers for {some(len(steps), 'step')}")
    return steps, values


def _draw(
    lines: Lines, name: str, drawn: list[dict[str, Any]], log_steps: bool, unit: str = "step"
) -> Figure:
    after = [step for steps, _ in lines.values() for step in steps if step > 0]
    least = min(after, default=1.0) if log_steps else 0.0
    traces = [
        _trace(i, name, steps, np.maximum(steps, least), values, unit)
        for i, (name, (steps, values)) in enumerate(lines.items())
    ]
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
    along = {"title": {"text": "training step" if unit == "step" else unit}, "zeroline": False}
    logarithmic = {"type": "log", "dtick": "D2", "minor": {"showgrid": False}}
    layout = {
        "xaxis": along | (logarithmic if log_steps else {}),
        "yaxis": {"title": {"text": name}, "rangemode": "tozero"},
        "legend": legend,
        "showlegend": len(lines) > 1,
        "hovermode": "x unified",
        "shapes": [shape for shape in drawn if "text" not in shape],
        "annotations": [note for note in drawn if "text" in note],
    }
    return Figure(traces, layout)


def _trace(
    i: int, name: str, steps: np.ndarray, x: np.ndarray, y: np.ndarray, unit: str
) -> go.Scatter:
    style = {"color": theme.OKABE_ITO[i % 8], "dash": theme.DASHES[i % 8], "width": 2}
    return go.Scatter(
        x=x,
        y=y,
        customdata=steps,
        mode="lines+markers" if len(steps) <= 40 else "lines",
        line=style,
        marker={"symbol": theme.MARKERS[i % 8], "size": 6},
        name=escape(name),
        hovertemplate="%{y:.3f} at %{customdata:,}",
        meta={"numbers": {"customdata": unit, "y": "value"}, "series": name},
    )


def _window(
    window: tuple[float, float] | None, words: str, log_steps: bool
) -> list[dict[str, Any]]:
    """The shade between two steps, and the words on it."""
    if window is None:
        return []
    if not window[0] <= window[1]:
        raise ValueError(f"window is (first step, last step), not {window}")
    x0 = max(window[0], 1) if log_steps else window[0]  # a logarithm has no 0
    shade = {"type": "rect", "x0": x0, "x1": window[1], "y0": 0, "y1": 1, "yref": "y domain"}
    shade |= {"xref": "x", "fillcolor": theme.SHADE, "line": {"width": 0}, "layer": "below"}
    return [shade, _note(escape(words), window[0], log_steps)]


def _marks(
    steps: Mapping[str, float] | None, levels: Mapping[str, float] | None, log_steps: bool
) -> list[dict[str, Any]]:
    """Lines at steps and at losses, and their names."""
    drawn: list[dict[str, Any]] = []
    line = {"type": "line", "line": {"color": theme.SOFT_INK, "width": 1, "dash": "dash"}}
    up, across = {"y0": 0, "y1": 1, "yref": "y domain"}, {"x0": 0, "x1": 1, "xref": "x domain"}
    for name, step in (steps or {}).items():
        drawn.append(line | up | {"x0": step, "x1": step, "xref": "x"})
        drawn.append(_note(escape(name), step, log_steps) | {"yshift": -16})
    for name, level in (levels or {}).items():
        drawn.append(line | across | {"y0": level, "y1": level, "yref": "y"})
        place = {"x": 1, "xref": "x domain", "xanchor": "right", "y": level, "yanchor": "top"}
        drawn.append({"text": f"{escape(name)}: {level:.2f}", **NOTE, **place})
    return drawn


NOTE = {"showarrow": False, "font": {"size": 11, "color": theme.SOFT_INK}}


def _note(words: str, step: float, log_steps: bool) -> dict[str, Any]:
    """Words at a step: plotly wants an annotation's place on a logarithmic axis as its log."""
    x = float(np.log10(max(step, 1))) if log_steps else step
    return {"text": words, "x": x, "y": 1, "yref": "y domain", "xanchor": "left",
            "yanchor": "top", **NOTE}  # fmt: skip


def _legend_width(lines: Lines) -> int:
    """Pixels from which on the legend takes three rows or fewer, and leaves room for the lines."""
    row = len(lines) * (7 * max(map(len, lines)) + 50) / 3
    return max(320, min(640, round(row) + 60))


def _gaps(lines: Lines) -> str:
    count = sum(int(np.isnan(values).sum()) for _, values in lines.values())
    return f"{some(count, 'point')} without a number (NaN) left out" if count else ""


def _alt(lines: Lines, window: tuple[float, float] | None, words: str, unit: str = "step") -> str:
    said = []
    for name, (steps, values) in lines.items():
        good = np.flatnonzero(np.isfinite(values))
        if good.size:
            first, last = good[0], good[-1]
            said.append(
                f"{name} goes from {values[first]:.2f} at {unit} {steps[first]:g} "
                f"to {values[last]:.2f} at {unit} {steps[last]:g}"
            )
    text = f"{sentence(listing(said, 6))}." if said else "No numbers yet."
    return text + (f" Shaded, {words}: {window[0]:g} to {window[1]:g}." if window else "")
