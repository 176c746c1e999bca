"""Circuit: which heads work together, with the evidence on each edge."""

from typing import Literal, cast, get_args

import pandas as pd
import streamlit as st

from apps import lines, state
from apps.answers import heads, wiring
from apps.charts import chart, literal, side_by_side, three_places
from apps.components import in_a_sentence
from apps.state import Chosen, answer
from interp import plots

Through = Literal["K", "Q", "V"]
COLUMNS = {
    "source": "from",
    "target": "to",
    "score_drop": "lost, cut at K",
    "score_drop_q": "at Q",
    "composition": "K-comp.",
    "percentile": "over random",
    "token_match": "own token",
    "token_match_without": "… alone",
}
MEANS = (
    "Lost: of the target’s induction score, when the edge is cut at its keys, or its queries, "
    "alone. K-comp.: K-composition; over random: the share of random rotations that it beats. Own "
    "token: for how many tokens the edge looks for the query’s own; alone: without the source."
)


def induction(chosen: Chosen) -> None:
    """The induction circuit."""
    st.markdown("#### The induction circuit")
    heads_found = answer(heads.induction_heads, chosen.opened)
    if heads_found is None:
        st.text("This model has no room for the trials that find induction heads.")
        return
    with st.spinner("Cutting edges, one at a time"):
        found = answer(wiring.induction, chosen.opened, heads_found)
    st.markdown(literal(found.found.verdict))
    if not found.edges:
        st.caption("No edge to draw." + (" Another checkpoint may have some." * bool(chosen.steps)))
        return
    left, right = st.columns([3, 2], gap="large")
    with left:
        fig = plots.circuit(
            found.nodes,
            found.edges,
            title="Which earlier heads do the induction heads read?",
            sign="width and number = what the induction score loses when that edge alone is cut",
            formula="induction score − the same with what the source writes taken off the target’s "
            "keys, nothing else",
            theme=chosen.theme,
        )
        chart(fig, "circuit-induction", python=lines.circuit(chosen.opened, wiring.SEQUENCES))
    with right:
        st.markdown("##### Evidence")
        st.caption("Behaviour first: cutting the edge alone. Weights beside it.", help=MEANS)
        table = pd.DataFrame(wiring.evidence(found)).rename(columns=COLUMNS)
        st.dataframe(table, hide_index=True, column_config=three_places(table))


def composition(chosen: Chosen) -> None:
    """Composition by the weights, as a map and as a graph with a threshold."""
    st.markdown("#### Composition, by the weights")
    through = st.segmented_control(
        "Through", list(get_args(Through)), default="K", required=True, key="through",
        bind="query-params",
    )  # fmt: skip
    kind = cast(Through, through)
    scores = answer(wiring.composition, chosen.opened, kind)
    top = wiring.top_score(scores)
    if not top:
        st.caption("This model has one layer: no head can read another.")
        return
    st.caption("A weak score is no proof of absence: pairs that work can lie below random.")
    share = st.slider("Draw edges over this share of the largest", 0, 100,
                      answer(wiring.readable_share, chosen.opened, kind), key="edges",
                      format="%d %%", bind="query-params")  # fmt: skip
    left, right = side_by_side(chosen, 2)
    with left:
        least = float(f"{top * share / 100:.3g}")
        fig = plots.composition_graph(scores, kind=kind, threshold=least, theme=chosen.theme)
        python = lines.composition(chosen.opened, kind, least)
        chart(fig, "composition-graph", python=python)
    with right:
        title = f"How much does each head feed the {kind} of each other?"
        fig = plots.composition_heatmap(scores, kind=kind, title=title, theme=chosen.theme)
        chart(fig, "composition-map", python=lines.composition(chosen.opened, kind, None))


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title("Which heads work together?")
    above, below = st.container(), st.container()
    for place, part in ((below, composition), (above, induction)):  # the quick one first
        with place, in_a_sentence():
            part(chosen)


draw()
