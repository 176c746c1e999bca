"""What happened over training: losses, scores, the window in which heads form."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import plotly.graph_objects as go

from interp.plots import theme
from interp.plots.arrays import Numbers, as_floats, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.text import escape, listing

Rows = Sequence[Mapping[str, Any]]


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
            `loss`.
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
    columns = _columns(run)
    losses = {k: v for k, v in columns.items() if k.endswith("loss")}
    if not losses:
        raise ValueError(f"wanted columns that end in 'loss', got {', '.join(columns)}")
    names = {k: k.replace("_", " ") for k in losses}
    fig = _lines(columns["step"], {names[k]: v for k, v in losses.items()}, log_steps)
    fig.update_yaxes(title_text="loss (nats)", rangemode="tozero")
    _window(fig, window, window_means)
    _marks(fig, marks or {}, levels or {})
    return finish(
        fig,
        question=title,
        alt=_alt(columns["step"], {names[k]: v for k, v in losses.items()}, window, window_means),
        formula="mean −ln p(target) over scored tokens",
        notes=[_gaps(losses)],
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
    at, lines = as_floats(steps, np.float64), {k: as_floats(v) for k, v in scores.items()}
    fig = _lines(at, lines, log_steps)
    fig.update_yaxes(title_text=escape(name), rangemode="tozero")
    _window(fig, window, window_means)
    _marks(fig, marks or {}, {})
    return finish(
        fig,
        question=title,
        alt=_alt(at, lines, window, window_means),
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
    lines = {k: as_floats(v) for k, v in given.items()}
    longest = max(map(len, lines.values()), default=0)
    lines = {k: np.pad(v, (0, longest - len(v)), constant_values=np.nan) for k, v in lines.items()}
    at = np.arange(longest, dtype=np.float64)
    fig = _lines(at, lines, log_steps=False, unit="position")
    fig.update_yaxes(title_text="mean loss (nats)", rangemode="tozero")
    _marks(fig, {}, levels or {})
    return finish(
        fig, question=title, alt=_alt(at, lines, None, "", unit="position"),
        notes=[_gaps(lines)], theme=theme, height=280, top=34,
    )  # fmt: skip


def _columns(run: HasMetrics | Rows | Mapping[str, Numbers]) -> dict[str, np.ndarray]:
    rows = run.metrics if isinstance(run, HasMetrics) else run
    if isinstance(rows, Mapping):
        columns = {k: as_floats(v, np.float64) for k, v in rows.items()}
    else:
        names = dict.fromkeys(k for row in rows for k in row if k == "step" or k.endswith("loss"))
        columns = {k: as_floats([row.get(k, np.nan) for row in rows], np.float64) for k in names}
    if "step" not in columns or not columns["step"].size:
        raise ValueError("wanted metrics with a 'step' in each row; there is none yet")
    return columns


def _lines(
    steps: np.ndarray, lines: Mapping[str, np.ndarray], log_steps: bool, unit: str = "step"
) -> Figure:
    fig = Figure()
    at = np.maximum(steps, steps[steps > 0].min(initial=1)) if log_steps else steps
    for i, (name, values) in enumerate(lines.items()):
        need_shape(values, unit, name)
        if len(values) != len(steps):
            raise ValueError(f"{name} has {len(values)} numbers for {some(len(steps), unit)}")
        line = _line(i, name, steps, at, values)
        line.meta = {"numbers": {"customdata": unit, "y": "value"}, "series": name}
        fig.add_trace(line)
    label = "training step" if unit == "step" else unit
    fig.update_xaxes(type="log" if log_steps else "linear", title_text=label, zeroline=False)
    if log_steps:
        fig.update_xaxes(dtick="D2", minor={"showgrid": False})
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
    fig.update_layout(legend=legend, showlegend=len(lines) > 1, hovermode="x unified")
    return fig


def _line(i: int, name: str, steps: np.ndarray, x: np.ndarray, y: np.ndarray) -> go.Scatter:
    style = {"color": theme.OKABE_ITO[i % 8], "dash": theme.DASHES[i % 8], "width": 2}
    return go.Scatter(
        x=x,
        y=y,
        customdata=steps,
        mode="lines+markers" if len(x) <= 40 else "lines",
        line=style,
        marker={"symbol": theme.MARKERS[i % 8], "size": 6},
        name=escape(name),
        hovertemplate="%{y:.3f} at %{customdata:,}",
    )


def _window(fig: Figure, window: tuple[float, float] | None, words: str) -> None:
    if window is None:
        return
    if not window[0] <= window[1]:
        raise ValueError(f"window is (first step, last step), not {window}")
    fig.add_vrect(x0=window[0], x1=window[1], fillcolor=theme.SHADE, line_width=0, layer="below")
    _note(fig, escape(words), x=window[0], y=1, yref="y domain", yanchor="top")


def _marks(fig: Figure, steps: Mapping[str, float], levels: Mapping[str, float]) -> None:
    line = {"color": theme.SOFT_INK, "width": 1, "dash": "dash"}
    for name, step in steps.items():
        fig.add_vline(x=step, line=line)
        _note(fig, escape(name), x=step, y=1, yref="y domain", yanchor="top")
    for name, level in levels.items():
        fig.add_hline(y=level, line=line)
        words = f"{escape(name)}: {level:.2f}"
        fig.add_annotation(text=words, x=1, xref="x domain", xanchor="right", y=level, **_NOTE)


_NOTE = {"showarrow": False, "font": {"size": 11, "color": theme.SOFT_INK}, "yanchor": "bottom"}


def _note(fig: Figure, words: str, *, x: float, **place: Any) -> None:
    """Words at a step: plotly wants an annotation's place on a logarithmic axis as its log."""
    if fig.layout.xaxis.type == "log":
        x = float(np.log10(max(x, 1)))
    fig.add_annotation(text=words, x=x, xanchor="left", **_NOTE | place)


def _gaps(lines: Mapping[str, np.ndarray]) -> str:
    count = sum(int(np.isnan(v).sum()) for v in lines.values())
    return f"{some(count, 'point')} without a number (NaN) left out" if count else ""


def _alt(
    steps: np.ndarray,
    lines: Mapping[str, np.ndarray],
    window: tuple[float, float] | None,
    words: str,
    unit: str = "step",
) -> str:
    said = []
    for name, values in lines.items():
        good = np.flatnonzero(np.isfinite(values))
        if good.size:
            first, last = good[0], good[-1]
            said.append(
                f"{name} goes from {values[first]:.2f} at {unit} {steps[first]:g} "
                f"to {values[last]:.2f} at {unit} {steps[last]:g}"
            )
    text = listing(said, 6).capitalize() + "." if said else "No numbers yet."
    return text + (f" Shaded, {words}: {window[0]:g} to {window[1]:g}." if window else "")
