"""Bars with intervals: what cutting heads costs, and which parts write the answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.plots import grid, theme
from interp.plots.arrays import Numbers, as_floats, need_shape, some
from interp.plots.figure import Figure, finish
from interp.plots.text import escape, listing, rounded

BAR, SECTION, NUMBER = 26, 34, 40  # pixels: a bar, a heading, room for a number left of a bar


def effect_bars(
    labels: Sequence[str],
    effects: Numbers,
    *,
    intervals: Numbers | None = None,
    groups: Sequence[str] | None = None,
    name: str = "Δloss in nats, ablated − clean",
    sign: str = "positive (blue) = loss rises without it: it was helping",
    title: str = "What does the model lose without these heads?",
    formula: str = "loss with the heads cut − loss as it is, mean over scored tokens",
    theme: str = "light",
) -> Figure:
    """A bar an intervention, first on top, with its number and interval; zero is marked.

    Args:
        labels: what was done, one a bar: "L1H0", "all three", …
        effects: [N]. NaN is a × at zero, counted under the title.
        intervals: [N 2], the ends of an interval around each.
        groups: the section that each bar stands in; sections keep their order and share the axis.
            Heads back each other up, so single effects belong beside those of the group.
        name: the quantity, for the axis.
        sign: what positive and negative mean.
        title: the question asked.
        formula: how the numbers are made.
        theme: "light" or "dark".

    Raises:
        ValueError: lengths that differ, or an interval that does not hold its effect.
    """
    array = as_floats(effects)
    need_shape(array, "bar", "effects")
    ends = _checked_intervals(array, intervals)
    sections = list(groups) if groups is not None else [""] * len(array)
    if not len(labels) == len(sections) == len(array):
        raise ValueError(
            f"{len(array)} effects need as many labels and groups, "
            f"not {len(labels)} and {len(sections)}"
        )
    fig = _draw(list(labels), array, ends, sections, _x_axis(array, ends), name)
    missing = int(np.isnan(array).sum())
    return finish(
        fig,
        question=title,
        alt=_alt(list(labels), array, sections, name),
        formula=formula,
        sign=sign,
        notes=[
            sign,
            "lines: intervals" if ends is not None else "",
            f"{some(missing, 'bar')} without a number (NaN), marked ×" if missing else "",
        ],
        theme=theme,
        height=BAR * len(array) + SECTION * len(set(sections)) + 50,
        top=34 if groups is not None else 12,
        right=NUMBER + 8,
    )


def _checked_intervals(effects: np.ndarray, intervals: Numbers | None) -> np.ndarray | None:
    if intervals is None:
        return None
    ends = as_floats(intervals)
    if ends.shape != (len(effects), 2):
        raise ValueError(f"intervals are [{len(effects)} 2] (low, high), not {list(ends.shape)}")
    slack = 1e-5 * (1 + np.abs(effects))
    if ((ends[:, 0] > effects + slack) | (ends[:, 1] < effects - slack)).any():
        raise ValueError("an interval does not hold its effect; intervals are (low, high), not ±")
    return ends


def _draw(
    labels: list[str],
    effects: np.ndarray,
    ends: np.ndarray | None,
    sections: list[str],
    along: dict[str, Any],
    name: str,
) -> Figure:
    order = list(dict.fromkeys(sections))
    members = [[i for i, s in enumerate(sections) if s == section] for section in order]
    standoff = {"ticklabelstandoff": NUMBER} if (np.nan_to_num(effects) < 0).any() else {}
    last, places = len(order) - 1, _places([len(m) for m in members])
    traces, layout = [], {"bargap": 0.25, "annotations": _headings(order, places)}
    for n, (section, chosen) in enumerate(zip(order, members, strict=True)):
        x, y = grid.subplot(n)
        rows = [labels[i] for i in chosen]
        part = None if ends is None else ends[chosen]
        traces += [t.update(xaxis=x, yaxis=y) for t in _bars(rows, effects[chosen], part, section)]
        below = {"title": {"text": escape(name)}}
        above = {"matches": grid.subplot(last)[0], "showticklabels": False}
        own = {"anchor": y, "domain": [0.0, 1.0]} | (below if n == last else above)
        layout[f"xaxis{x[1:]}"] = along | own
        layout[f"yaxis{y[1:]}"] = {"anchor": x, "domain": places[n]} | _names(rows) | standoff
    return Figure(traces, layout)


def _places(counts: list[int]) -> list[tuple[float, float]]:
    """The share of the height, from the bottom, that each section takes; first on top."""
    gap = SECTION / (BAR * sum(counts) + SECTION * len(counts))
    room, top, found = 1 - gap * (len(counts) - 1), 1.0, []
    for count in counts:
        bottom = top - room * count / sum(counts)
        found.append((max(bottom, 0.0), top))
        top = bottom - gap
    return found


def _headings(order: list[str], places: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """The name of each section over it."""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "yref": "paper", "yanchor": "bottom"}
    how = place | {"showarrow": False, "font": {"size": 13, "color": theme.SOFT_INK}}
    pairs = zip(order, places, strict=True)
    return [how | {"text": escape(name), "y": top} for name, (_, top) in pairs if name]


def _bars(
    labels: list[str], effects: np.ndarray, ends: np.ndarray | None, section: str
) -> list[Any]:
    shown = np.nan_to_num(effects)
    hover = [
        f"{escape(label)}<br>{_number(e)}{_range(ends, i)}"
        for i, (label, e) in enumerate(zip(labels, effects, strict=True))
    ]
    bars = go.Bar(
        x=effects,
        y=np.arange(len(labels)),
        orientation="h",
        marker={"color": [theme.POSITIVE if e >= 0 else theme.NEGATIVE for e in shown]},
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
        meta={"numbers": {"y": "bar", "x": "effect"}, "series": section},
    )
    if ends is not None:
        reach = np.abs(ends - effects[:, None])
        line = {"color": theme.INK, "thickness": 1.4, "width": 4}
        bars.error_x = {"array": reach[:, 1], "arrayminus": reach[:, 0], "symmetric": False} | line
    return [bars, *_values(effects, ends), *_crosses(effects)]


def _values(effects: np.ndarray, ends: np.ndarray | None) -> list[go.Scatter]:
    """The number of each bar, beyond its end or its interval's."""
    far = effects if ends is None else np.where(effects >= 0, ends[:, 1], ends[:, 0])
    side = ["middle right" if e >= 0 else "middle left" for e in effects]
    texts = ["" if np.isnan(e) else f" {rounded(float(e), plus=True)} " for e in effects]
    font = {"size": 12, "color": theme.INK}
    where = {"x": np.nan_to_num(far), "y": np.arange(len(effects))}
    return [
        go.Scatter(
            **where, mode="text", text=texts, textposition=side, textfont=font, hoverinfo="skip",
            showlegend=False, cliponaxis=False,
        )
    ]  # fmt: skip


def _crosses(effects: np.ndarray) -> list[go.Scatter]:
    rows = np.flatnonzero(np.isnan(effects))
    mark = {"symbol": "x-thin", "size": 9, "line": {"width": 1.5, "color": theme.SOFT_INK}}
    cross = go.Scatter(x=np.zeros(len(rows)), y=rows, mode="markers", marker=mark)
    return [cross.update(hoverinfo="skip", showlegend=False)] if rows.size else []


def _number(effect: float) -> str:
    return "not a number" if np.isnan(effect) else f"{effect:+.4g}".replace("-", "−")


def _range(ends: np.ndarray | None, i: int) -> str:
    return "" if ends is None else f" ({ends[i, 0]:+.3g} to {ends[i, 1]:+.3g})".replace("-", "−")


def _names(labels: list[str]) -> dict[str, Any]:
    ticks = {"tickmode": "array", "tickvals": np.arange(len(labels))}
    ticks["ticktext"] = [escape(label) for label in labels]
    return ticks | {"range": [len(labels) - 0.5, -0.5], "showgrid": False, "zeroline": False}


def _x_axis(effects: np.ndarray, ends: np.ndarray | None) -> dict[str, Any]:
    reach = np.concatenate([effects, [] if ends is None else ends.ravel(), [0.0]])
    low, high = float(np.nanmin(reach)), float(np.nanmax(reach))
    pad = 0.08 * (high - low or 1.0)  # and the margin: room for the number beyond a bar's end
    return {"range": [low - pad / 4, high + pad], "zeroline": True, "zerolinewidth": 1.5}


def _alt(labels: list[str], effects: np.ndarray, sections: list[str], name: str) -> str:
    parts = []
    for section in dict.fromkeys(sections):
        chosen = [i for i, s in enumerate(sections) if s == section]
        bars = [f"{labels[i]} {_number(effects[i])}" for i in chosen]
        parts.append(f"{section}: {listing(bars, 8)}" if section else listing(bars, 8))
    return f"{name}. {'; '.join(parts)}."


def logit_attribution(
    labels: Sequence[str],
    values: Numbers,
    *,
    intervals: Numbers | None = None,
    title: str = "Which parts write the answer?",
    theme: str = "light",
) -> Figure:
    """Direct logit attribution: what each part adds to the logit of the answer, over the wrong one.

    Args:
        labels: the parts: "embedding", "L0H0", "MLP 0", …
        values: [N], logits.
        intervals: [N 2], the ends of an interval around each.
        title: the question asked.
        theme: "light" or "dark".
    """
    return effect_bars(
        labels,
        values,
        intervals=intervals,
        name="logit of the answer, direct share",
        sign="positive (blue) = speaks for the answer, negative (red) = against it",
        title=title,
        formula="(part / final norm) · (W_U[answer] − W_U[wrong])",
        theme=theme,
    )
