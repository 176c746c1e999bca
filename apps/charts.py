"""How every chart stands on a page: its question, how to read it, its numbers, what it exports."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from interp import plots

MOST_ROWS = 5000  # of a table of numbers on the page; exports have them all
CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
MOST_BESIDE = 8  # heads of a layer, in half of a page
NARROWEST = 320  # pixels; any screen has them
SCROLLED = """<style>
.st-key-chart-{key} .stElementContainer:has(.stPlotlyChart) {{ overflow-x: auto; }}
.st-key-chart-{key} [data-testid=stFullScreenFrame] {{ min-width: {width}px; }}
</style>"""
# A square plot shrinks with the page, its figure does not: what is blank under it is cut off.
SQUARE = """<style>
.st-key-plot-{key} {{ aspect-ratio: 0.86; height: auto; flex: none; overflow: hidden;
  max-height: {height}px; }}
.st-key-plot-{key} > * {{ flex: none; height: {height}px; }}
</style>"""
MARKUP = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:<>&])")


def literal(text: str) -> str:
    """Text that Markdown shows as it is."""
    return MARKUP.sub(r"\\\1", text.replace("\n", " "))


def chart(
    fig: go.Figure,
    key: str,
    *,
    python: str,
    on_click: Callable[[str], None] | None = None,
    hint: str = "",
    square: bool = False,
) -> None:
    """A figure under its question, with ⓘ, its numbers and its exports.

    Args:
        fig: From `interp.plots`.
        key: Of its widgets; differs from all others on the page.
        python: The lines that make this figure.
        on_click: Called with the key when a cell was clicked.
        hint: What can be done with it.
        square: It shrinks where the page is narrow, rather than scroll.
    """
    words = plots.about(fig)
    with st.container(key=f"chart-{key}", gap="xsmall"):
        _head(fig, words, key, python, hint)
        bare = plots.without_title(fig)
        if square:
            st.html(SQUARE.format(key=key, height=bare.layout["height"]))
        elif words.least_width > NARROWEST:
            st.html(SCROLLED.format(key=key, width=words.least_width))
        clicks: dict[str, Any] = {}
        if on_click is not None:
            clicks = {"on_select": lambda: on_click(key), "selection_mode": "points"}
        with st.container(key=f"plot-{key}"):
            st.plotly_chart(bare, key=key, alt=words.alt, theme=None, config=CONFIG, **clicks)


def _head(fig: go.Figure, words: plots.About, key: str, python: str, hint: str) -> None:
    with st.container(
        horizontal=True, vertical_alignment="center", gap="xsmall", wrap=False, key=f"head-{key}"
    ):
        st.markdown(f"##### {literal(words.question)}", width="stretch")
        with st.popover("", icon=":material/info:", type="tertiary", help="How to read it"):
            _reading(words)
        opened = st.popover(
            "Numbers", type="tertiary", key=f"{key}-numbers", on_change="rerun", help="As a table"
        )
        if opened.open:
            with opened:
                _numbers(fig)
        with st.popover("Export", type="tertiary", help="CSV, JSON, HTML, Python"):
            _exports(fig, key, python)
    notes = [hint, *(note for note in words.notes if note != words.sign)]
    notes = [note for note in notes if note]
    if notes:
        st.caption(literal(" · ".join(notes)))


def _reading(words: plots.About) -> None:
    st.markdown(literal(words.alt))
    if words.formula:
        st.caption("How it is made")
        st.markdown(literal(words.formula))
    if words.sign:
        st.caption("Sign")
        st.markdown(literal(words.sign))


def _numbers(fig: go.Figure) -> None:
    table = plots.numbers(fig)
    if len(table) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS:,} of {len(table):,} rows; the export has them all.")
    st.dataframe(table.head(MOST_ROWS), hide_index=True, width=520)


def _exports(fig: go.Figure, key: str, python: str) -> None:
    name = re.sub(r"\W+", "-", key)
    kinds: list[tuple[str, Callable[[go.Figure], str], str, str]] = [
        ("CSV", plots.to_csv, "csv", "text/csv"),
        ("JSON", plots.to_json, "json", "application/json"),
        ("HTML, self-contained", plots.to_html, "html", "text/html"),
    ]
    for label, make, ending, mime in kinds:
        st.download_button(
            label,
            data=lambda make=make: make(fig),
            file_name=f"{name}.{ending}",
            mime=mime,
            key=f"{key}-{ending}",
            on_click="ignore",
            width="stretch",
        )
    st.caption("PNG: the camera over the chart. In Python:")
    st.code(python, language="python")


def clicked(key: str) -> tuple[int, int] | None:
    """The (row, column) of the cell that was clicked in a chart; None if it was taken back."""
    points = st.session_state[key]["selection"]["points"]
    if not points:
        return None
    return round(points[0]["y"]), round(points[0]["x"])


def side_by_side(chosen: Any, spec: Any) -> Sequence[Any]:
    """Two places for pictures of all heads: below each other where there are many heads."""
    if chosen.opened.model.config.n_heads > MOST_BESIDE:
        return st.container(), st.container()
    return st.columns(spec, gap="large")


def three_places(table: pd.DataFrame) -> dict[str, Any]:
    """How a table's numbers are written: one under the other, whatever they end in."""
    numbers = table.select_dtypes("number").columns
    return {str(name): st.column_config.NumberColumn(format="%.3f") for name in numbers}


def head_table(table: pd.DataFrame, key: str, on_select: Callable[[str], None]) -> None:
    """A sortable table of heads, in which a row can be chosen."""
    st.dataframe(
        table,
        key=key,
        hide_index=True,
        column_config=three_places(table),
        on_select=lambda: on_select(key),
        selection_mode="single-row",
    )
