"""Attention: where each token looks, in the chosen head and in all of them."""

from typing import Literal, cast

import streamlit as st

from apps import lines, state
from apps.answers import heads
from apps.answers.heads import What
from apps.charts import chart, clicked, side_by_side
from apps.components import token_strip
from apps.state import Chosen, answer
from interp import plots

WHAT: dict[What, str] = {
    "probability": "probability",
    "scores": "score",
    "value-weighted": "value-weighted",
}
Outline = Literal["induction", "previous", "duplicate", "first", "none"]
OUTLINES: dict[Outline, str] = {
    "induction": "where an induction head should look",
    "previous": "the token before",
    "duplicate": "earlier occurrences of the same token",
    "first": "the first token",
    "none": "",
}
MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
LONG, WINDOW = 512, 128  # tokens


def move(direction: str) -> None:
    """An arrow key: the head beside, or the layer above or below."""
    chosen, (down, right) = state.chosen(), MOVES[direction]
    config = chosen.opened.model.config
    state.select((chosen.layer + down) % config.n_layers, (chosen.head + right) % config.n_heads)


def select_cell(key: str) -> None:
    """A click on a thumbnail."""
    cell = clicked(key)
    if cell is not None:
        state.select(*cell)


def strip(chosen: Chosen) -> None:
    """The tokens, and where the pinned or hovered one looks."""
    args = (chosen.prompt, chosen.layer, chosen.head, "probability")
    weights = answer(heads.pattern, chosen.opened, *args)
    st.caption(
        f"Hover a token to see where it looks in {chosen.head_name}, click to pin it; "
        "arrow keys change head and layer."
    )
    token_strip(
        chosen.prompt.labels,
        weights,
        chosen.pin,
        theme=chosen.theme,
        key="strip",
        on_pin=state.pin,
        on_move=move,
    )


def controls() -> tuple[What, Outline, bool]:
    """What is drawn, what is outlined, and where the colours end."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        what = st.segmented_control(
            "Show", list(WHAT), default="probability", required=True, key="what",
            format_func=lambda key: WHAT[key], bind="query-params",
        )  # fmt: skip
        outline = st.segmented_control(
            "Outline", list(OUTLINES), default="induction", required=True, key="outline",
            bind="query-params", wrap=True,
        )  # fmt: skip
        full = st.toggle("Colours from 0 to 1", True, key="full", bind="query-params")
    return cast(What, what), cast(Outline, outline), full


def window(chosen: Chosen) -> range:
    """Which queries and keys of a long prompt are drawn."""
    count = len(chosen.prompt.tokens)
    if count <= LONG:
        return range(count)
    parts = [range(count), *(range(n, min(n + WINDOW, count)) for n in range(0, count, WINDOW))]
    names = ["all, pooled", *(f"{part.start} to {part.stop - 1}" for part in parts[1:])]
    label = "Long prompt: all of it, pooled, or a part in full"
    return parts[names.index(st.select_slider(label, names, key="part", bind="query-params"))]


def big_picture(chosen: Chosen, what: What, outline: Outline, full: bool) -> None:
    """The pattern of the chosen head, with what it should look at outlined."""
    args = (chosen.prompt, chosen.layer, chosen.head, what)
    pattern = answer(heads.pattern, chosen.opened, *args)
    part = window(chosen)
    rows = slice(part.start, part.stop)
    marked = None
    if outline != "none":
        marked = plots.where_to_look(chosen.prompt.tokens, outline)[rows, rows]
    fig = plots.attention(
        pattern[rows, rows],
        chosen.prompt.labels,
        what=what,
        queries=part,
        keys=part,
        causal=heads.is_causal(chosen.opened),
        outline=marked,
        outline_means=OUTLINES[outline],
        full_range=full,
        title=f"Where does each token look in {chosen.head_name}?",
        theme=chosen.theme,
    )
    head, causal = (chosen.layer, chosen.head), heads.is_causal(chosen.opened)
    python = lines.pattern(chosen.opened, chosen.prompt, head, what, part, causal)
    chart(fig, "attention-pattern", python=python, square=True)


def small_pictures(chosen: Chosen) -> None:
    """All heads at a glance; a click chooses one."""
    with st.spinner("Drawing all heads"):
        small = answer(heads.thumbnails, chosen.opened, chosen.prompt)
    fig = plots.attention_thumbnails(
        small,
        selected=(chosen.layer, chosen.head),
        causal=heads.is_causal(chosen.opened),
        title="Which head looks where?",
        pooled_from=len(chosen.prompt.tokens),
        theme=chosen.theme,
    )
    python = lines.thumbnails(chosen.opened, chosen.prompt, heads.is_causal(chosen.opened))
    hint = "click a head to choose it"
    chart(fig, "attention-thumbnails", python=python, on_click=select_cell, hint=hint)


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title(f"Attention of {chosen.head_name}")
    strip(chosen)
    shown = controls()
    left, right = side_by_side(chosen, [3, 2])
    with left:
        big_picture(chosen, *shown)
    with right:
        small_pictures(chosen)


draw()
