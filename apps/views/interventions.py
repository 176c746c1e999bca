"""Interventions: what the model loses without some of its heads."""

import math
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from apps import lines, state
from apps.answers import carrying, cutting, heads, reading
from apps.answers.instead import KINDS, Instead
from apps.answers.reading import Guess
from apps.charts import chart, clicked, literal, three_places
from apps.components import in_a_sentence
from apps.prompts import label_of
from apps.sources import UnreadableError
from apps.state import Chosen, answer
from apps.words import name_of, places, signed
from interp import plots
from interp.ablation import HeadSweep
from interp.plots import scales
from interp.plots.arrays import some

MOST_CHOICES = 1024  # tokens of a larger vocabulary are chosen from the prompt
FIRST, MORE = ("zero", "mean"), "more …"


def pick_heads(chosen: Chosen) -> cutting.Heads:
    """Which heads are cut: named groups, or one by one."""
    config = chosen.opened.model.config
    every = [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
    names = {name_of(head): head for head in every}
    kept = [name for name in st.session_state.get("cut", []) if name in names]
    if "cut" in st.session_state and kept != st.session_state["cut"]:
        st.session_state["cut"] = kept
    with st.spinner("Looking for groups of heads"):
        groups = named_groups(chosen)
    with st.container(horizontal=True, gap="xsmall"):
        for words, group in groups.items():
            st.button(
                words, on_click=state.cut, args=([name_of(head) for head in group],),
                disabled=not group, help=", ".join(map(name_of, group)) or "there is none",
            )  # fmt: skip
    picked = st.multiselect(
        "Heads to cut", list(names), key="cut", bind="query-params",
        placeholder="Choose heads, or a group above",
    )  # fmt: skip
    return tuple(names[name] for name in picked)


def named_groups(chosen: Chosen) -> dict[str, list[tuple[int, int]]]:
    """Groups that a button chooses."""
    found = answer(heads.induction_heads, chosen.opened)
    uniform = answer(heads.statistics, chosen.opened, None).near_uniform()
    return {
        "The induction heads": list(found or []),
        "The near-uniform heads": uniform,
        f"Only {chosen.head_name}": [(chosen.layer, chosen.head)],
        "None": [],
    }


def pick_kind() -> str:
    """What a cut head gives."""
    help_words = "\n".join(f"- **{kind}**: {words}" for kind, words in KINDS.items())
    kind = st.segmented_control(
        "A cut head gives", [*FIRST, MORE], default="zero", required=True, key="kind",
        bind="query-params", help=help_words,
    )  # fmt: skip
    if kind == MORE:
        others = [other for other in KINDS if other not in FIRST]
        kind = st.selectbox("Which", others, key="other_kind", bind="query-params")
    st.caption(f"{kind}: {KINDS[str(kind)]}")
    return str(kind)


def instead(chosen: Chosen, kind: str, *, over_samples: bool) -> Instead:
    """The kind, with the constants that it puts in; fitting those takes a while."""
    if kind not in ("mean", "optimal"):
        return Instead(kind)
    opened, prompt = chosen.opened, chosen.prompt
    own = not over_samples and answer(cutting.outgrows_samples, opened, prompt)
    basis = prompt if own else None
    if kind == "mean":
        table, taken = answer(cutting.means, opened, basis), "means are its own"
    else:
        words = "Fitting the constants that cost least"
        table = state.work_out(cutting.fitted, opened, basis, words=words)
        taken = "constants are fitted to itself"
    if own:
        st.caption(f"This prompt is longer than the samples: its {taken}.")
    return Instead(kind, table, fitted_to=str(prompt.tokens) if own else "")


def side_by_side(chosen: Chosen, cut: cutting.Heads, kind: Instead) -> None:
    """The prompt, as it is and with the heads cut, coloured by loss."""
    found = answer(cutting.cut, chosen.opened, chosen.prompt, cut, kind, chosen.pin)
    limits = (0.0, math.log(chosen.opened.model.config.vocab_out))
    names = " ".join(map(name_of, cut)) or "nothing"
    st.caption(f"dark = expected, yellow = a blind guess ({limits[1]:.2f} nats)")
    left, right = st.columns(2, gap="large")
    columns = [
        (left, "As it is", found.clean, found.clean_top),
        (right, f"Without {names}", found.ablated, found.ablated_top),
    ]
    for column, title, losses, top in columns:
        with column:
            st.markdown(f"##### {title}")
            st.html(
                plots.token_html(chosen.prompt.labels, losses, limits=limits, theme=chosen.theme)
            )
            st.caption(f"says after token {chosen.pin}: {said(top)}")
    if cut:
        st.markdown("##### What changed (Δloss in nats, ablated − clean)")
        st.caption(
            "blue = the loss rises without them: they were helping · red = it falls · "
            f"full colour = {scales.limits(found.difference, 'effect')[1]:.2g} nats or more"
        )
        html = plots.token_html(
            chosen.prompt.labels, found.difference, kind="effect", theme=chosen.theme
        )
        st.html(html)


def said(top: list[Guess]) -> str:
    """The likeliest tokens with their probabilities, harmless in Markdown."""
    return literal(", ".join(f"{plots.visible(g.token)} {g.probability:.2f}" for g in top[:3]))


def group_bars(chosen: Chosen, cut: cutting.Heads, kind: Instead) -> None:
    """Together, each, and each kept alone, over samples."""
    words = f"Cutting {some(len(cut), 'head')}"
    bars = state.work_out(cutting.group, chosen.opened, None, cut, kind, words=words)
    fig = plots.effect_bars(
        bars.labels,
        bars.effects,
        intervals=bars.intervals,
        groups=bars.sections,
        title="What does the model lose without these heads?",
        theme=chosen.theme,
    )
    python = lines.group(chosen.opened, cut, kind.kind)
    chart(fig, "group", python=python)
    clean = answer(reading.score_card, chosen.opened).elsewhere
    elsewhere = answer(cutting.elsewhere, chosen.opened, cut, kind, clean)
    asked, rest = places(chosen.opened)
    said = f"Over held-out samples. {asked.capitalize()}: {signed(bars.effects[0])} nats together"
    st.caption(said + ("." if elsewhere is None else f"; {rest}: {signed(elsewhere)}."))


def stop() -> None:
    """End the sweep that is running; the click has already done it."""
    st.session_state["sweep"] = False


def select_cell(key: str) -> None:
    """A click on the sweep's mosaic."""
    cell = clicked(key)
    if cell is not None:
        state.select(*cell)


def swept(chosen: Chosen, kind: str, cancel: DeltaGenerator) -> HeadSweep:
    """The sweep, worked out; then the button that cancels it goes."""
    words = "Cutting each head in turn"
    try:
        given = instead(chosen, kind, over_samples=True)
        found = state.work_out(heads.sweep, chosen.opened, None, given, words=words)
    except UnreadableError:
        st.session_state["sweep"] = False
        cancel.empty()
        raise
    st.session_state["sweep"] = False
    cancel.empty()
    return found


def sweep(chosen: Chosen, kind: str) -> None:
    """Every head cut alone, when it is asked for."""
    st.markdown("#### Every head, cut alone")
    found = state.known(heads.sweep, chosen.opened, None, Instead(kind))
    if found is None:
        if not st.session_state.get("sweep"):
            st.caption("Heads back each other up: a small effect alone does not mean unused.")
            if not st.button("Sweep all heads", icon=":material/grid_on:"):
                return
            st.session_state["sweep"] = True
        place = st.empty()
        place.button("Cancel", on_click=stop, key="cancel-sweep")
        found = swept(chosen, kind, place)
    metric = heads.METRICS["effect"]
    fig = plots.head_heatmap(
        found.effect, kind="effect", name=metric.name, formula=metric.formula,
        selected=(chosen.layer, chosen.head), theme=chosen.theme,
    )  # fmt: skip
    python = lines.sweep(chosen.opened, kind)
    left, right = st.columns([3, 2], gap="large")
    with left:
        chart(
            fig,
            "sweep-mosaic",
            python=python,
            on_click=select_cell,
            hint="click a cell to select the head",
        )
    with right:
        st.markdown("##### With 95 % intervals")
        table = pd.DataFrame(cutting.sweep_rows(found))
        st.dataframe(table, hide_index=True, column_config=three_places(table))


def patching(chosen: Chosen) -> None:
    """Which places carry the answer from this prompt to one with a token replaced."""
    st.markdown("#### What carries the answer?")
    opened, prompt = chosen.opened, chosen.prompt
    right = answer(carrying.answer_at, opened, prompt, chosen.pin)
    present = list(dict.fromkeys(prompt.tokens))
    unlike = (right + 1) % opened.model.config.d_vocab
    vocabulary = list(range(opened.model.config.d_vocab))
    if len(vocabulary) > MOST_CHOICES:
        vocabulary = sorted({*present, unlike})
    label = partial(label_of, opened)
    wanted = literal(plots.visible(label(right)))
    st.caption(
        "A corrupted prompt has one token replaced wherever it stands. Carrying one head's output, "
        f"or one position, over from the clean run: does “{wanted}” come back after token "
        f"{chosen.pin}?"
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        first = present.index(right) if right in present else 0
        old = st.selectbox("Replace", present, first, format_func=label, key=f"old{chosen.pin}")
        place = vocabulary.index(unlike)
        new = st.selectbox("by", vocabulary, place, format_func=label, key=f"new{chosen.pin}")
        by = st.segmented_control("Carry over each", ["head", "position"], default="head",
                                  required=True, key="carry", bind="query-params")  # fmt: skip
        asked = (prompt, (int(old), int(new)), chosen.pin, str(by))
        known = state.known(carrying.patched, opened, *asked)
        if known is None and not st.button("Patch", icon=":material/swap_horiz:"):
            return
    values = state.work_out(carrying.patched, opened, *asked, words="Patching each place")
    fig = plots.patching_heatmap(
        values, across=str(by), labels=prompt.labels if by == "position" else None,
        theme=chosen.theme,
    )  # fmt: skip
    python = lines.patched(opened, prompt, (int(old), int(new)), chosen.pin, str(by), right)
    chart(fig, "patching", python=python)


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title("What happens without them?")
    left, right = st.columns([3, 2], gap="large")
    with left:
        cut = pick_heads(chosen)
    with right:
        name = pick_kind()
    with in_a_sentence():
        kind = instead(chosen, name, over_samples=False) if cut else Instead("zero")
        side_by_side(chosen, cut, kind)
    if not cut:
        st.info("Choose heads above to cut them, here and over held-out samples.")
    with in_a_sentence():
        if cut:
            group_bars(chosen, cut, instead(chosen, name, over_samples=True))
    with in_a_sentence():
        sweep(chosen, name)
    with in_a_sentence():
        patching(chosen)


draw()
