"""Tokens that are invisible, that are markup, that repeat."""

import html
import re

import numpy as np
import pytest

from interp import plots
from interp.plots import scales
from interp.plots.text import shorten, unescape, visible

ODD = [
    "\n",
    "\t",
    " ",
    "",
    "\u200b",
    "👩‍👩‍👧‍👦",
    "שלום",
    "a\u0301",
    "\u0301",
    "\x00",
    "\xa0",
    "\u202e",
]
MARKUP = [
    "<b>x</b>",
    "**x**",
    "$x$",
    "<script>alert(1)</script>",
    "&amp;",
    "<br>",
    "%{y}",
    ":smile:",
]


def test_invisible_tokens_are_seen_and_told_apart():
    shown = [visible(t) for t in ODD]
    assert shown[:5] == ["↵", "⇥", "·", "∅", "U+200B"]
    assert len(set(shown)) == len(ODD)
    assert all(s.strip() for s in shown)
    assert visible(" the") == "·the"


def test_a_sign_that_stands_for_something_is_told_apart_from_it():
    assert visible("·") == "U+00B7"
    assert visible("↵") == "U+21B5"


def test_glue_inside_an_emoji_is_kept_and_right_to_left_text_is_isolated():
    assert visible("👩‍👩‍👧‍👦") == "👩‍👩‍👧‍👦"
    assert visible("שלום") == "\u2068שלום\u2069"
    assert visible("\u202eabc") == "U+202Eabc"


@pytest.mark.parametrize("token", MARKUP)
def test_markup_is_literal_in_labels(token):
    (label,) = plots.token_labels([token], width=40)
    assert "<" not in label
    assert "$" not in label  # MathJax would take it, where a page has it
    assert unescape(label) == visible(token)


@pytest.mark.parametrize("draw", ["attention", "lens", "loss", "patch"])
def test_odd_and_hostile_tokens_label_every_position_in_order(draw):
    tokens = ODD + MARKUP
    n = len(tokens)
    fig = {
        "attention": lambda: plots.attention(np.eye(n), tokens),
        "lens": lambda: plots.logit_lens(np.zeros((2, n)), [tokens] * 2, labels=tokens),
        "loss": lambda: plots.token_loss(tokens, np.ones(n)),
        "patch": lambda: plots.patching_heatmap(np.zeros((2, n)), labels=tokens),
    }[draw]()
    texts = fig.layout.xaxis.ticktext
    assert [unescape(t).split(" ")[1] for t in texts] == [
        shorten(visible(t), 18).split(" ")[0] for t in tokens
    ]
    assert all("<" not in t for t in texts)


def test_repeated_tokens_are_never_merged():
    fig = plots.attention(np.eye(20), ["the"] * 20)
    assert fig.data[0].z.shape == (20, 20)
    assert len(set(fig.layout.xaxis.tickvals)) == len(fig.layout.xaxis.ticktext) == 20
    assert fig.layout.xaxis.type is None  # numbers, not categories
    assert len(plots.token_loss(["the"] * 20, np.ones(20)).data[0].x) == 20


def test_token_html_is_literal_isolated_and_complete():
    tokens = ODD + MARKUP
    text = plots.token_html(tokens, np.linspace(0, 3, len(tokens)), limits=(0, 4))
    spans = re.findall(r"<span title=\"([^\"]*)\"[^>]*>(.*?)</span>", text, re.S)
    assert [html.unescape(shown) for _, shown in spans] == [visible(t) for t in tokens]
    assert "<script" not in text
    assert text.count("unicode-bidi:isolate") == len(tokens)
    assert html.unescape(spans[3][0]).startswith("3: '', loss (nats) ")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["loss", "difference", "probability"])
def test_token_html_is_legible(kind, theme):
    values = np.linspace(-1, 1, 21) if kind == "difference" else np.linspace(0, 1, 21)
    text = plots.token_html(["a"] * 21, values, kind=kind, theme=theme)
    pairs = re.findall(r"background:(#\w{6});color:(#\w{6})", text)
    assert len(pairs) == 21
    assert (
        min(scales.contrast(*pair) for pair in pairs) > 4.3
    )  # the best that two inks off pure black and white can do on mid-grey


def test_a_token_that_was_not_predicted_has_no_colour():
    text = plots.token_html(["a", "b"], [float("nan"), 1.0])
    assert text.count("background:") == 1
    assert "is not a number" in text
    fig = plots.token_loss(["a", "b"], [float("nan"), 1.0], ceiling=4.0)
    assert np.isnan(fig.data[0].y[0])
    assert fig.data[1].x.tolist() == [0]
    assert "1 token not predicted" in plots.about(fig).notes[0]


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="2 tokens need 2 labels, not 1"):
        plots.token_loss(["a"], [1.0, 2.0])
    with pytest.raises(ValueError, match="not empty|none of them empty"):
        plots.token_html([], [])


def test_a_long_sequence_names_some_tokens_on_its_axis_and_all_in_its_table():
    fig = plots.token_loss([f"t{i}" for i in range(100)], np.ones(100))
    assert fig.layout.xaxis.showticklabels is False
    assert len(fig.layout.xaxis2.ticktext) <= 24
    assert any(trace.xaxis == "x2" for trace in fig.data)  # else plotly draws no axis
    assert list(plots.numbers(fig)["position label"])[99] == "99 t99"
    short = plots.token_loss(["a"] * 64, np.ones(64))
    assert "xaxis2" not in short.to_plotly_json()["layout"]


def test_what_a_phone_can_t_hold_is_scrolled():
    def least(fig):
        return plots.about(fig).least_width

    heads = [f"L0H{i}" for i in range(12)]
    assert least(plots.interaction_heatmap(np.eye(12), heads)) >= 12 * 40
    assert least(plots.composition_graph(np.ones((2, 12, 2, 12)))) >= 12 * 36
    assert least(plots.composition_graph(np.ones((2, 4, 2, 4)))) <= 320
    assert least(plots.composition_heatmap(np.ones((2, 12, 2, 12)))) >= 24 * 12
    scores = {f"previous token, L{i}": [0.0, 1.0] for i in range(6)}
    assert least(plots.scores_by_step([0, 1], scores)) > 350
    assert least(plots.scores_by_step([0, 1], {"best of L0": [0.0, 1.0]})) == 320


def test_a_name_fits_its_circle():
    def size(heads):
        fig = plots.composition_graph(np.ones((2, heads, 2, heads)))
        return next(trace for trace in fig.data if trace.name == "nodes").textfont.size

    assert size(4) == 11
    assert size(12) < 10
