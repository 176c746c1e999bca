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
    fig = _draw(lines, log_steps)
    fig.update_yaxes(title_text="loss (nats)", rangemode="tozero")
    _window(fig, window, window_means)
    _marks(fig, marks or {}, levels or {})
    return finish(
        fig,
        question=title,
        alt=_alt(lines, window, window_means),
        formula="mean −ln p(target) over scored tokens",
        notes=[_gaps(lines)],
        theme=theme,
        height=300,
        top=34,
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
    fig = _draw(lines, log_steps)
    fig.update_yaxes(title_text=escape(name), rangemode="tozero")
    _window(fig, window, window_means)
    _marks(fig, marks or {}, {})
    return finish(
        fig,
        question=title,
        alt=_alt(lines, window, window_means),
        notes=[_gaps(lines)],
        theme=theme,
        height=300,
        top=34,
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
    fig = _draw(lines, log_steps=False, unit="position")
    fig.update_yaxes(title_text="mean loss (nats)", rangemode="tozero")
    _marks(fig, {}, levels or {})
    return finish(
        fig, question=title, alt=_alt(lines, None, "", unit="position"),
        notes=[_gaps(lines)], theme=theme, height=280, top=34,
    )  # fmt: skip


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


def _draw(lines: Lines, log_steps: bool, unit: str = "step") -> Figure:
    after = [step for steps, _ in lines.values() for step in steps if step > 0]
    least = min(after, default=1.0) if log_steps else 0.0
    fig = Figure(
        [
            _trace(i, name, steps, np.maximum(steps, least), values, unit)
            for i, (name, (steps, values)) in enumerate(lines.items())
        ]
    )
    fig.update_xaxes(title_text="training step" if unit == "step" else unit, zeroline=False)
    if log_steps:
        fig.update_xaxes(type="log", dtick="D2", minor={"showgrid": False})
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
    fig.update_layout(legend=legend, showlegend=len(lines) > 1, hovermode="x unified")
    return fig


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


def _window(fig: Figure, window: tuple[float, float] | None, words: str) -> None:
    if window is None:
        return
    if not window[0] <= window[1]:
        raise ValueError(f"window is (first step, last step), not {window}")
    least = 1 if fig.layout.xaxis.type == "log" else window[0]  # a logarithm has no 0
    fig.add_vrect(
        x0=max(window[0], least), x1=window[1], fillcolor=theme.SHADE, line_width=0, layer="below"
    )
    _note(fig, escape(words), x=window[0], y=1, yref="y domain", yanchor="top")


def _marks(fig: Figure, steps: Mapping[str, float], levels: Mapping[str, float]) -> None:
    line = {"color": theme.SOFT_INK, "width": 1, "dash": "dash"}
    for name, step in steps.items():
        fig.add_vline(x=step, line=line)
        _note(fig, escape(name), x=step, y=1, yref="y domain", yanchor="top", yshift=-16)
    for name, level in levels.items():
        fig.add_hline(y=level, line=line)
        words = f"{escape(name)}: {level:.2f}"
        place = {"x": 1, "xref": "x domain", "xanchor": "right", "y": level, "yanchor": "top"}
        fig.add_annotation(text=words, **_NOTE | place)


_NOTE = {"showarrow": False, "font": {"size": 11, "color": theme.SOFT_INK}, "yanchor": "bottom"}


def _note(fig: Figure, words: str, *, x: float, **place: Any) -> None:
    """Words at a step: plotly wants an annotation's place on a logarithmic axis as its log."""
    if fig.layout.xaxis.type == "log":
        x = float(np.log10(max(x, 1)))
    fig.add_annotation(text=words, x=x, xanchor="left", **_NOTE | place)


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
