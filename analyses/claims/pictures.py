"""A picture of what a claim measured: lines over sizes, bars over names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from claims.record import Claim

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SPAN = 30  # values further apart than this times are drawn on a log axis
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")

Series = dict[str, dict[str, float]]
"""By name: values by size or by name."""


def pictures(claim: Claim) -> list["Figure"]:
    """One of each table of numbers in what was measured."""
    tables = [(name, _series(name, value)) for name, value in claim.measured.items()]
    if claim.measured and all(_is_flat(value) for value in claim.measured.values()):
        tables = [("", {name: _strings(value) for name, value in claim.measured.items()})]
    return [_picture(name, series) for name, series in tables if series]


def _series(name: str, value: Any) -> Series:
    if _is_flat(value):
        return {name: _strings(value)}
    if not isinstance(value, Mapping) or not all(_is_flat(row) for row in value.values()):
        return {}
    rows = {str(key): _strings(row) for key, row in value.items()}
    if not _are_sizes(list(rows)):
        return rows
    names = {inner for row in rows.values() for inner in row}
    return {inner: {size: row[inner] for size, row in rows.items()} for inner in sorted(names)}


def _is_flat(value: Any) -> bool:
    """A table of numbers by name."""
    return (
        isinstance(value, Mapping)
        and len(value) > 1
        and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value.values())
    )


def _strings(row: Mapping[Any, float]) -> dict[str, float]:
    return {str(key): float(x) for key, x in row.items()}


def _are_sizes(names: list[str]) -> bool:
    return all(name.isdigit() for name in names)


def _picture(name: str, series: Series) -> "Figure":
    from plotly import graph_objects as go

    sizes = _are_sizes([key for row in series.values() for key in row])
    figure = go.Figure()
    for (label, row), colour, dash in zip(series.items(), COLOURS * 2, DASHES * 2, strict=False):
        y = list(row.values())
        if sizes:
            line = {"color": colour, "dash": dash}
            figure.add_scatter(x=[int(key) for key in row], y=y, name=label, line=line)
        else:
            figure.add_bar(x=list(row), y=y, name=label, marker_color=colour)
    values = [x for row in series.values() for x in row.values()]
    if min(values) > 0 and max(values) / min(values) > SPAN:
        figure.update_yaxes(type="log")
    if sizes:
        figure.update_xaxes(type="log")
    title = name.replace("_", " ")
    figure.update_layout(title=title, template="plotly_white", height=340, width=640)
    return figure
