"""Predictions: what surprises the model, what it holds for likely, since which layer, and why."""

import math

import pandas as pd
import streamlit as st

from apps import lines, state
from apps.answers import reading
from apps.charts import chart
from apps.state import Chosen, answer
from interp import plots

MOST_PARTS = 24  # bars
LARGEST_LENS = 2 * 10**8  # numbers that the logit lens may hold


def losses(chosen: Chosen) -> None:
    """Loss of each token."""
    config = chosen.opened.model.config
    fig = plots.token_loss(
        chosen.prompt.labels,
        answer(reading.losses, chosen.opened, chosen.prompt),
        ceiling=math.log(config.vocab_out),
        theme=chosen.theme,
    )
    chart(fig, "token-loss", python=lines.losses(chosen.opened, chosen.prompt))


def likely(chosen: Chosen) -> None:
    """The likeliest tokens after the pinned one."""
    label = plots.visible(chosen.prompt.labels[chosen.pin])
    st.markdown(f"##### What does the model say at token {chosen.pin}?")
    target = answer(reading.asked_at, chosen.opened, chosen.prompt, chosen.pin)
    st.text(f"after “{label}”" + (f"; right is “{plots.visible(target)}”" if target else ""))
    guesses = answer(reading.top_tokens, chosen.opened, chosen.prompt, chosen.pin)
    table = pd.DataFrame(
        {
            "token": [plots.visible(guess.token) for guess in guesses],
            "probability": [guess.probability for guess in guesses],
            "logit": [guess.logit for guess in guesses],
        }
    )
    bar = st.column_config.ProgressColumn(min_value=0, max_value=1, format="%.3f")
    number = st.column_config.NumberColumn(format="%.2f")
    st.dataframe(table, hide_index=True, column_config={"probability": bar, "logit": number})


def over_layers(chosen: Chosen) -> None:
    """The logit lens."""
    config = chosen.opened.model.config
    size = (config.n_layers + 1) * len(chosen.prompt.tokens) * config.vocab_out
    if size > LARGEST_LENS:
        st.text(f"The logit lens of this prompt has {size:,} numbers: shorten the prompt.")
        return
    grid = answer(reading.lens_grid, chosen.opened, chosen.prompt)
    fig = plots.logit_lens(
        grid.values, grid.words, labels=chosen.prompt.labels, layers=grid.layers,
        theme=chosen.theme,
    )  # fmt: skip
    chart(fig, "logit-lens", python=lines.over_layers(chosen.opened, chosen.prompt))


def writers(chosen: Chosen) -> None:
    """Direct logit attribution at the pinned token."""
    parts = answer(reading.attribution, chosen.opened, chosen.prompt, chosen.pin, MOST_PARTS)
    fig = plots.logit_attribution(
        parts.labels,
        parts.effects,
        title=f"Which parts write “{plots.visible(parts.answer)}” after token {chosen.pin}?",
        theme=chosen.theme,
    )
    at = (chosen.pin, parts.token, MOST_PARTS)
    python = lines.writers(chosen.opened, chosen.prompt, *at)
    chart(fig, "attribution", python=python)
    if parts.left_out:
        st.caption(
            f"The {len(parts.labels)} largest of {len(parts.labels) + parts.left_out} parts."
        )


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title("Predictions")
    losses(chosen)
    left, right = st.columns([1, 1], gap="large")
    with left:
        likely(chosen)
    with right:
        writers(chosen)
    over_layers(chosen)


draw()
