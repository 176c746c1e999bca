"""Heads: any score of all heads, side by side with another run or checkpoint, and as a table."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from apps import lines, state
from apps.answers import heads
from apps.charts import chart, clicked, head_table, literal, side_by_side
from apps.prompts import Prompt, samples
from apps.scores import formula, score
from apps.sources import Opened, UnreadableError, steps_of
from apps.state import Chosen, answer
from apps.words import NEAR_UNIFORM, name_of
from interp import plots
from interp.plots.text import listing

OVER = {"samples": "held-out samples", "prompt": "this prompt"}
HINT = "click a cell to select the head"
NO_OTHER = "(no other run)"  # no folder is called so
SHOW = {"side": "side by side", "difference": "difference"}
TABLE = ("induction", "previous_token", "duplicate_token", "sink", "normalized_entropy",
         "mean_distance", "write_norm")  # fmt: skip


def controls(chosen: Chosen) -> tuple[str, Prompt | None]:
    """Which score, over what."""
    metric = st.pills(
        "Score",
        list(heads.METRICS),
        default="induction",
        required=True,
        format_func=lambda key: heads.METRICS[key].label,
        key="metric",
        bind="query-params",
    )
    choices = list(OVER) if answer(has_samples, chosen.opened) else ["prompt"]
    over = st.segmented_control(
        "Over", choices, default=choices[0], required=True, format_func=lambda key: OVER[key],
        key="over", bind="query-params",
    )  # fmt: skip
    return str(metric), chosen.prompt if over == "prompt" else None


def has_samples(opened: Opened) -> bool:
    """Whether scores can be averaged over samples."""
    return samples(opened, 1) is not None


def second(chosen: Chosen) -> Opened | None:
    """What to compare with: another run, another checkpoint."""
    found = state.available()
    with st.expander("Compare with another run or checkpoint", bind="query-params", key="more"):
        names = [NO_OTHER, *found]
        state.kept("run_b", names, names[0])
        name = st.selectbox("Run B", names, key="run_b", bind="query-params")
        if name not in found:
            return None
        steps = steps_of(found[name])
        step = None
        if steps:
            state.kept("step_b", steps, steps[-1])
            step = st.select_slider(
                "Checkpoint of B", steps, steps[-1], key="step_b", bind="query-params"
            )
    try:
        return state.opened(name, found[name], step)
    except UnreadableError as error:
        st.text(str(error))
        return None


def label_of(opened: Opened) -> str:
    """A run's name, with its checkpoint."""
    return opened.name if opened.step is None else f"{opened.name}, step {opened.step:,}"


def figure(chosen: Chosen, metric: str, over: Prompt | None, values: Any) -> go.Figure:
    """The mosaic."""
    about = heads.METRICS[metric]
    return plots.head_heatmap(
        values,
        kind=about.kind,
        name=about.name,
        formula=formula(chosen.opened, metric, over),
        threshold=NEAR_UNIFORM if about.kind == "entropy" else None,
        selected=(chosen.layer, chosen.head),
        theme=chosen.theme,
    )


def comparison(chosen: Chosen, other: Opened, metric: str, over: Prompt | None) -> None:
    """Two mosaics on one scale, or their difference."""
    about = heads.METRICS[metric]
    pair = [score(o, metric, over) for o in (chosen.opened, other)]
    if pair[0].shape != pair[1].shape:
        st.text(
            f"{label_of(other)} has {pair[1].shape[0]} × {pair[1].shape[1]} heads, "
            f"{label_of(chosen.opened)} {pair[0].shape[0]} × {pair[0].shape[1]}: "
            "only models of one shape can be compared head by head."
        )
        return
    show = st.segmented_control(
        "Show", list(SHOW), default="side", required=True, format_func=lambda key: SHOW[key],
        key="show", bind="query-params",
    )  # fmt: skip
    names = (label_of(chosen.opened), label_of(other))
    if show == "side":
        fig = plots.head_comparison(
            *pair, names=names, kind=about.kind, name=about.name, theme=chosen.theme
        )
    else:
        fig = plots.head_difference(*pair, names=names, name=about.name, theme=chosen.theme)
    python = lines.comparison(chosen.opened, other, over, metric, show == "difference")
    chart(fig, "heads-comparison", python=python)


def select_cell(key: str) -> None:
    """A click on the mosaic."""
    cell = clicked(key)
    if cell is not None:
        state.select(*cell)


def select_row(key: str) -> None:
    """A click on the table."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        state.select(*divmod(rows[0], state.chosen().opened.model.config.n_heads))


def table(chosen: Chosen, over: Prompt | None, metric: str, values: Any) -> pd.DataFrame:
    """What the mosaic says and the common scores, a row a head."""
    statistics = answer(heads.statistics, chosen.opened, over)
    columns = {metric: values} | {key: heads.column(statistics, key) for key in TABLE}
    names = [name_of((layer, head)) for layer, head in pd.MultiIndex.from_product(
        [range(n) for n in values.shape]
    )]  # fmt: skip
    shown = {heads.METRICS[key].label: column.ravel() for key, column in columns.items()}
    return pd.DataFrame({"head": names, **shown}).round(3)


def note_on_uniform(chosen: Chosen, over: Prompt | None) -> None:
    """That near-uniform is a finding, not a fault."""
    uniform = answer(heads.statistics, chosen.opened, over).near_uniform(NEAR_UNIFORM)
    listed = listing([name_of(head) for head in uniform], 8) or "none"
    st.caption(
        literal(
            f"Near-uniform at {NEAR_UNIFORM:g} or more: {listed}. This is real, not a fault, and "
            "not the same as useless: a head that averages over everything can be what the model "
            "counts with. Look at write and Δloss beside it."
        )
    )


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title("Heads")
    metric, over = controls(chosen)
    with st.spinner("Scoring the heads"):
        values = score(chosen.opened, metric, over)
    left, right = side_by_side(chosen, [1, 1])
    with left:
        python = lines.mosaic(chosen.opened, over, metric)
        fig = figure(chosen, metric, over, values)
        chart(
            fig,
            "heads-mosaic",
            python=python,
            on_click=select_cell,
            hint="click a cell to select the head",
        )
        if heads.METRICS[metric].kind == "entropy":
            note_on_uniform(chosen, over)
        st.page_link(
            "views/attention.py",
            label=f"See where {chosen.head_name} looks",
            icon=":material/visibility:",
        )
    with right:
        st.markdown("##### The same as a table")
        st.caption("Sort by a column; choose a row to select the head.")
        head_table(table(chosen, over, metric, values), "heads-table", select_row)
    other = second(chosen)
    if other is not None:
        comparison(chosen, other, metric, over)


draw()
