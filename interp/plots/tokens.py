"""Tokens as labels, as coloured text and as bars: literal, visible, none merged with another."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from interp.plots import grid, scales, theme
from interp.plots.arrays import Numbers, as_floats, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.text import escape, shorten, unescape, visible

LABEL_WIDTH = 18  # characters
MOST_LABELS = 64  # more don't fit; hovering names them all
FEW_LABELS = 24  # of a longer sequence


def token_labels(strings: Sequence[str], *, width: int = LABEL_WIDTH) -> list[str]:
    """One label a token for plotly's ticks, hovers and texts: visible, literal, not too long.

    Tokens that are equal get equal labels: put them on an axis of integers (see `token_axis`),
    where no two positions merge.
    """
    return [escape(shorten(visible(s), width)) for s in strings]


def token_axis(
    labels: Sequence[str] | None,
    positions: Sequence[int],
    title: str,
    *,
    down: bool = False,
    per_cell: int = 1,
) -> dict[str, Any]:
    """An axis of integers whose ticks read `position token`.

    All ticks are named, for hovering; where they don't fit they are hidden (`thinned` draws
    some of them).

    Args:
        labels: strings of the whole sequence, or None for bare positions.
        positions: which of them the cells stand for.
        title: what the axis is, in words.
        down: first on top.
        per_cell: how many positions one cell stands for.
    """
    cells = [list(positions[i : i + per_cell]) for i in range(0, len(positions), per_cell)]
    texts = [_cell_label(labels, cell) for cell in cells]
    axis = grid.counted_axis(len(cells), title, down=down)
    axis |= {"tickmode": "array", "tickvals": np.arange(len(cells)), "ticktext": texts}
    axis |= {"tickfont": {"family": theme.MONO, "size": 11}}
    return axis | ({} if down else {"tickangle": 0 if labels is None and per_cell == 1 else -90})


def _cell_label(labels: Sequence[str] | None, cell: list[int]) -> str:
    place = f"{cell[0]}" if len(cell) == 1 else f"{cell[0]}–{cell[-1]}"
    if labels is None:
        return place
    return f"{place} {token_labels([labels[cell[0]]])[0]}" + ("" if len(cell) == 1 else "…")


def label_room(axis: dict[str, Any]) -> int:
    """Pixels that the upright labels of an axis and its title take."""
    return round(6.7 * max(len(unescape(t)) for t in axis["ticktext"])) + 40


def label_width(count: int) -> int:
    """Pixels under which the upright labels of so many tokens run into each other."""
    return 110 + 12 * min(count, MOST_LABELS)


def thinned(axis: dict[str, Any], over: str, most: int = FEW_LABELS) -> dict[str, Any]:
    """A second axis laid over a crowded one, that writes only some of its ticks."""
    every = max(1, -(-len(axis["ticktext"]) // most))
    shown = {"tickvals": axis["tickvals"][::every], "ticktext": axis["ticktext"][::every]}
    extra = {"overlaying": over, "matches": over, "showgrid": False, "zeroline": False}
    kept = {k: v for k, v in axis.items() if k != "range"}
    return kept | shown | extra | {"side": "left" if over[0] == "y" else "bottom"}


def check_labels(labels: Sequence[str] | None, count: int) -> None:
    """Raise unless there is a label for each of `count` tokens.

    Raises:
        ValueError: there are more or fewer.
    """
    if labels is not None and len(labels) != count:
        raise ValueError(f"{count} tokens need {count} labels, not {len(labels)}")


def token_loss(
    strings: Sequence[str],
    losses: Numbers,
    *,
    ceiling: float | None = None,
    title: str = "Which tokens surprise the model?",
    theme: str = "light",
) -> Figure:
    """Bars of the loss at each token, in nats; a line marks `ceiling`, the loss of a blind guess.

    Args:
        strings: the T tokens.
        losses: [T], the loss of predicting that token; NaN where it was not predicted.
        ceiling: ln V; the colours end there.
        title: the question asked.
        theme: "light" or "dark".

    Raises:
        ValueError: the lengths differ.
    """
    array = as_floats(losses)
    need_shape(array, "position", "losses")
    check_labels(strings, len(array))
    high = ceiling or float(np.nanmax(array, initial=1e-3))
    axis = token_axis(strings, range(len(array)), "token")
    layout = {"yaxis": {"title": {"text": "loss (nats)"}, "rangemode": "tozero"}, "bargap": 0.1}
    traces = [_bars(array, high), *_unscored(array, high)]
    if len(array) <= MOST_LABELS:
        fig = Figure(traces, layout | {"xaxis": axis})
    else:  # hovering names them all, the axis some
        some_of = thinned(axis, "x") | {"anchor": "y"}
        hidden = axis | {"showticklabels": False, "title": {"text": ""}}
        fig = Figure([*traces, _ticks()], layout | {"xaxis": hidden, "xaxis2": some_of})
    if ceiling:
        _reference(fig, ceiling, f"a blind guess: {ceiling:.2f}")
    missing = int(np.isnan(array).sum())
    return finish(
        fig,
        question=title,
        alt=_loss_alt(strings, array),
        formula="−ln p(token | tokens before it)",
        notes=[f"{some(missing, 'token')} not predicted, marked ×" if missing else ""],
        theme=theme,
        height=180 + label_room(axis),
        least_width=label_width(len(array) if len(array) <= MOST_LABELS else FEW_LABELS),
    )


def _bars(array: np.ndarray, high: float) -> go.Bar:
    shown = np.nan_to_num(array)
    return go.Bar(
        x=np.arange(len(array)),
        y=array,
        marker={"color": [scales.color_at(float(v), "loss", span=(0, high)) for v in shown]},
        hovertemplate="%{x}<br>loss %{y:.3f} nats<extra></extra>",
        meta={"numbers": {"x": "position", "y": "loss"}},
        showlegend=False,
    )


def _unscored(array: np.ndarray, high: float) -> list[go.Scatter]:
    where = np.flatnonzero(np.isnan(array))
    mark = {"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": theme.SOFT_INK}}
    cross = go.Scatter(x=where, y=np.full(len(where), high * 0.03), mode="markers", marker=mark)
    cross.update(hovertemplate="%{x}<br>not predicted<extra></extra>", showlegend=False)
    return [cross] if where.size else []


def _ticks() -> go.Scatter:
    """What an axis without anything on it needs to be drawn."""
    return go.Scatter(x=[0], y=[0], xaxis="x2", opacity=0, hoverinfo="skip", showlegend=False)


def _reference(fig: go.Figure, y: float, words: str) -> None:
    fig.add_hline(
        y=y,
        line={"color": theme.SOFT_INK, "width": 1, "dash": "dash"},
        annotation={
            "text": words,
            "font": {"size": 11, "color": theme.SOFT_INK},
            "yanchor": "bottom",
        },
    )


def _loss_alt(strings: Sequence[str], losses: Float[np.ndarray, " position"]) -> str:
    scored = np.flatnonzero(np.isfinite(losses))
    if not scored.size:
        return f"Loss of {some(len(losses), 'token')}: none was predicted."
    worst = scored[np.argmax(losses[scored])]
    return (
        f"Loss of {some(len(losses), 'token')}: mean {losses[scored].mean():.2f} nats over "
        f"{scored.size} predicted; hardest is token {worst}, {visible(strings[int(worst)])}, at "
        f"{losses[worst]:.2f}."
    )


def token_html(
    strings: Sequence[str],
    values: Numbers,
    *,
    kind: scales.Kind = "loss",
    name: str | None = None,
    limits: tuple[float, float] | None = None,
    theme: str = "light",
) -> str:
    """The text itself, each token on the colour of its number; HTML without scripts or styles.

    Tokens are literal and visible, right-to-left ones isolated, lines break after a newline.
    A token without a number (NaN) is underlined with dots on no colour. Its `title` says
    position, token and number.

    Args:
        strings: the T tokens.
        values: [T] numbers.
        kind: what they are (see `scales.SCALES`).
        name: the quantity in words.
        limits: the ends of the colour scale, for losses (0, ln V).
        theme: "light" or "dark".

    Raises:
        ValueError: the lengths differ, or a number lies outside its kind's range.
    """
    _theme.check_theme(theme)
    array = as_floats(values)
    need_shape(array, "position", "values")
    check_labels(strings, len(array))
    span = scales.limits(array, kind, given=limits)
    name = name or scales.scale_of(kind).bar
    dark = theme == "dark"
    spans = [
        _span(i, token, float(v), (kind, name), span, dark)
        for i, (token, v) in enumerate(zip(strings, array, strict=True))
    ]
    style = f"font-family:{_theme.MONO};line-height:2;overflow-wrap:anywhere"
    return (
        f'<div role="group" aria-label="{html.escape(name)} of each token" '
        f"style='{style}'>{''.join(spans)}</div>"
    )


def _span(
    i: int, token: str, value: float, what: tuple[str, str], span: tuple[float, float], dark: bool
) -> str:
    kind, name = what
    words = f"{i}: {token!r}, {name} {'is not a number' if np.isnan(value) else f'{value:.3f}'}"
    style = "padding:.15em .2em;margin:0 1px;border-radius:3px;unicode-bidi:isolate;"
    if np.isnan(value):
        style += "border-bottom:2px dotted #888"
    else:
        cell = scales.color_at(value, kind, span=span, dark=dark)
        inks = (_theme.FIXED_INK, _theme.FIXED_LIGHT)
        style += f"background:{cell};color:{max(inks, key=lambda k: scales.contrast(k, cell))}"
    shown = html.escape(visible(token))
    line = "<br>" if token.endswith("\n") else "<wbr>"
    return f'<span title="{html.escape(words)}" style="{style}">{shown}</span>{line}'


_theme = theme  # the module, where an argument has its name
