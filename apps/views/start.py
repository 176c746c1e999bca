"""Start: what this model does, in words, four numbers and two pictures."""

import math

import streamlit as st

from apps import lines, state
from apps.answers import heads, reading
from apps.charts import chart, clicked, literal
from apps.scores import score
from apps.state import Chosen, answer
from apps.words import (
    induction_sentence,
    loss_sentence,
    name_of,
    places,
    uniform_sentence,
)
from interp import plots

MANY_HEADS = 48  # beyond, the verdict does without the sweep over all heads


def verdict(chosen: Chosen) -> None:
    """The sentences that a newcomer reads first."""
    opened = chosen.opened
    with st.spinner("Trying the heads on sequences that repeat"):
        found = answer(heads.induction_heads, opened)
    said = [f"**{literal(induction_sentence(found))}**"]
    evenness = score(opened, "normalized_entropy", None)
    uniform = answer(heads.statistics, opened, None).near_uniform()
    card = answer(reading.score_card, opened)
    effect = None
    if uniform and evenness.size <= MANY_HEADS and math.isfinite(card.loss):
        effect = score(opened, "effect", None)
    said.append(literal(uniform_sentence(uniform, evenness, effect)))
    said.append(literal(loss_sentence(opened, card)))
    st.markdown(" ".join(said))


def cards(chosen: Chosen) -> None:
    """Loss, accuracy, the best induction head, how many heads are near-uniform."""
    card = answer(reading.score_card, chosen.opened)
    induction = score(chosen.opened, "induction", None)
    best = heads.highest(induction)
    statistics = answer(heads.statistics, chosen.opened, None)
    uniform = statistics.near_uniform()
    asked, rest = places(chosen.opened)
    with st.container(key="cards"):
        columns = st.columns(4)
    columns[0].metric(
        f"Loss {asked}", number(card.loss, ".2f"), border=True,
        help=f"Nats a scored target, over held-out samples. {rest.capitalize()}: "
        f"{card.elsewhere:.2f}. A blind guess: {blind_guess(chosen):.2f}.",
    )  # fmt: skip
    columns[1].metric(
        f"Accuracy {asked}",
        number(card.accuracy, ".0%"),
        border=True,
        help="Over held-out samples.",
    )
    columns[2].metric(
        "Highest induction score", f"{name_of(best)} · {induction[best]:.2f}" if best else "–",
        border=True, help=heads.METRICS["induction"].formula,
    )  # fmt: skip
    columns[3].metric(
        "Near-uniform heads", f"{len(uniform)} of {induction.size}", border=True,
        help="Mean normalised entropy of 0.9 or more, over rows that see "
        f"{statistics.min_keys} keys or more. "
        "Near-uniform is not useless: see Δloss on the page Heads.",
    )  # fmt: skip


def number(value: float, form: str) -> str:
    """A number, or a dash where there is none."""
    return format(value, form) if math.isfinite(value) else "–"


def blind_guess(chosen: Chosen) -> float:
    """Ln V: the loss of a model that knows nothing."""
    return math.log(chosen.opened.model.config.vocab_out)


def prompt(chosen: Chosen) -> None:
    """The prompt, coloured by how much each token surprises the model."""
    with st.container(key="chart-prompt", gap="xsmall"):
        st.markdown("##### Which tokens surprise the model?")
        st.caption(
            f"{literal(chosen.prompt.about)} · dark = expected, yellow = a blind guess "
            f"({blind_guess(chosen):.2f} nats) · dotted = nothing is predicted there"
        )
        losses = answer(reading.losses, chosen.opened, chosen.prompt)
        limits = (0.0, blind_guess(chosen))
        html = plots.token_html(chosen.prompt.labels, losses, limits=limits, theme=chosen.theme)
        st.html(html)


def open_attention(key: str) -> None:
    """Follow a click on the mosaic."""
    cell = clicked(key)
    if cell is not None:
        state.select(*cell)
        state.go("attention")


def mosaic(chosen: Chosen) -> None:
    """All heads by their induction score."""
    metric = heads.METRICS["induction"]
    fig = plots.head_heatmap(
        score(chosen.opened, "induction", None),
        name=metric.name,
        formula=metric.formula,
        title="Which heads copy from the previous occurrence?",
        selected=(chosen.layer, chosen.head),
        theme=chosen.theme,
    )
    python = lines.mosaic(chosen.opened, None, "induction")
    hint = "click a cell to see where that head looks"
    chart(fig, "start-mosaic", python=python, on_click=open_attention, hint=hint)


def ablate(names: list[str]) -> None:
    """Open Interventions with these heads cut."""
    state.go("interventions", cut=names)


def next_steps(chosen: Chosen) -> None:
    """Where to go from here."""
    st.markdown("##### Try this")
    found = answer(heads.induction_heads, chosen.opened) or []
    st.page_link(
        "views/attention.py",
        label=f"See where {chosen.head_name} looks",
        icon=":material/visibility:",
    )
    if found:
        st.button(
            "Ablate the induction heads",
            type="primary",
            icon=":material/content_cut:",
            help="Cut together, and each kept alone",
            on_click=ablate,
            args=([name_of(head) for head in found],),
        )
    if len(chosen.steps) > 1:
        st.page_link(
            "views/training.py", label="Watch the heads form", icon=":material/show_chart:"
        )
    st.page_link("views/heads.py", label="Compare all heads", icon=":material/grid_on:")


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title("Which heads do what?")
    verdict(chosen)
    cards(chosen)
    prompt(chosen)
    left, right = st.columns([5, 2], gap="large")
    with left:
        mosaic(chosen)
    with right:
        next_steps(chosen)


draw()
