"""What leaves the picture: tables, files, pages and notebooks, without a network."""

import io
import json
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io
import pytest

from interp import plots
from interp.plots import theme

TOKENS = ["#hash", "a,b", '"q"', "\n", "<b>", "</script><script>alert(1)</script>"]


def pattern():
    weights = np.tril(np.random.default_rng(0).random((6, 6)))
    weights /= weights.sum(1, keepdims=True)
    weights[3] = np.nan
    return weights


def test_numbers_are_what_the_screen_shows_without_masked_cells():
    given = pattern()
    table = plots.numbers(plots.attention(given, TOKENS))
    assert len(table) == 21  # visible cells
    assert table.weight.isna().sum() == 4  # NaN stays NaN
    row = table[(table["query"] == 5) & (table["key"] == 2)].iloc[0]
    assert row.weight == pytest.approx(given[5, 2])
    assert row["key label"] == '2 "q"'
    assert row["query label"].startswith("5 </scrip")


def test_csv_reads_back_whatever_the_tokens_hold_and_states_what_was_left_out():
    fig = plots.attention(pattern(), TOKENS)
    text = plots.to_csv(fig)
    back = pd.read_csv(io.StringIO(text), comment="#")
    pd.testing.assert_frame_equal(back, plots.numbers(fig), check_dtype=False, rtol=1e-5)
    assert "# 4 cells without a number (NaN), crossed out" in text


def test_bytes_come_out_as_numbers_and_pooling_is_stated():
    given = np.tril(np.random.default_rng(0).random((600, 600)))
    fig = plots.attention(given)
    table = plots.numbers(fig)
    row = table[(table["query"] == 200) & (table["key"] == 100)].iloc[0]
    assert row.weight == pytest.approx(given[400:402, 200:202].max(), abs=1 / 255)
    assert "max-pooled" in json.loads(plots.to_json(fig))["notes"][0]


def test_json_carries_the_words_and_nan_as_null():
    found = json.loads(plots.to_json(plots.head_heatmap([[0.5, np.nan]], name="induction score")))
    assert found["rows"] == [
        {"layer": 0, "head": 0, "induction score": 0.5},
        {"layer": 0, "head": 1, "induction score": None},
    ]
    assert "induction score" in found["alt"].lower()


def test_lines_and_bars_export_true_steps_and_intervals():
    lines = plots.numbers(plots.scores_by_step([0, 5], {"L1H0": [0.1, 0.9]}, log_steps=True))
    assert lines.to_dict("list") == {
        "series": ["L1H0"] * 2,
        "step": [0, 5],
        "value": pytest.approx([0.1, 0.9]),
    }
    bars = plots.numbers(plots.effect_bars(["x"], [1.0], intervals=[[0.5, 2.0]]))
    assert bars[["bar label", "low", "effect", "high"]].to_numpy().tolist() == [["x", 0.5, 1, 2]]


def test_html_file_holds_plotly_once_and_asks_nothing_of_the_network():
    text = plots.to_html(plots.attention(pattern(), TOKENS))
    assert text.count("plotly.js v") == 1
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=", text)
    assert "<script>alert" not in text


def test_notebook_bundle_serves_every_front_end_and_touches_no_global_renderer():
    before = plotly.io.renderers.default
    bundle = plots.head_heatmap([[0.5]])._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    json.dumps(bundle)
    assert "http" not in re.sub(r'unpack\("[^"]*"\)', "", bundle["text/html"])
    assert len(bundle["text/html"]) < 2_500_000
    assert plotly.io.renderers.default == before
    background = bundle["application/vnd.plotly.v1+json"]["layout"]["paper_bgcolor"]
    assert background == "#ffffff"  # legible in a dark JupyterLab too


def test_dark_figure_is_the_light_one_with_other_colours():
    light = plots.head_heatmap([[0.5, -0.5]], kind="effect")
    dark = plots.head_heatmap([[0.5, -0.5]], kind="effect", theme="dark")
    assert plots.in_theme(light, "dark").to_plotly_json()["data"] == dark.to_plotly_json()["data"]
    assert dark.layout.template.layout.font.color == theme.LIGHT_TO_DARK[theme.INK]
    assert light.layout.template.layout.font.color == theme.INK
    assert not set(theme.LIGHT_TO_DARK) & set(theme.LIGHT_TO_DARK.values())
    with pytest.raises(ValueError, match="theme is one of"):
        plots.head_heatmap([[0.5]], theme="solarized")


def test_a_token_that_spells_a_colour_is_no_colour():
    fig = plots.attention([[1.0]], [theme.INK], theme="dark")
    assert fig.layout.xaxis.ticktext[0] == f"0 {theme.INK}"


def test_title_can_be_set_as_text_by_the_page():
    fig = plots.head_heatmap([[0.95]], kind="entropy")
    bare = plots.without_title(fig)
    assert bare.layout.title.text == ""
    assert bare.layout.height < fig.layout.height
    assert plots.about(bare).question == "Which heads attend almost uniformly?"
    with pytest.raises(ValueError, match="no alt text"):
        plots.about(go.Figure())


MADE = {
    "head_heatmap": lambda: plots.head_heatmap([[0.2, 0.95]], kind="entropy", selected=(0, 1)),
    "composition_graph": lambda: plots.composition_graph(np.ones((2, 2, 2, 2))),
    "composition_heatmap": lambda: plots.composition_heatmap(np.ones((2, 2, 2, 2))),
    "effect_bars": lambda: plots.effect_bars(["a", "b"], [1.0, -1.0], groups=["one", "two"]),
    "loss_curve": lambda: plots.loss_curve(
        {"step": [0, 5], "loss": [2.0, 1.0]}, window=(1, 4), marks={"here": 5}, levels={"a": 2.0}
    ),
    "heads_by_step": lambda: plots.heads_by_step(np.ones((2, 1, 2)), [0, 5]),
    "logit_lens": lambda: plots.logit_lens([[0.5, np.nan]], [["a", "b"]]),
}


@pytest.mark.parametrize("name", MADE)
def test_a_figure_of_the_dashboard_is_not_changed_bit_by_bit(name, monkeypatch):
    def slow(*args, **kwargs):  # 5 to 10 ms a call, each
        raise AssertionError("plotly's updates take longer than the rest of a figure")

    for update in ("update_layout", "update_xaxes", "update_yaxes", "add_annotation", "add_shape"):
        monkeypatch.setattr(go.Figure, update, slow)
    bare = plots.without_title(MADE[name]())
    assert bare.layout.title.text == ""


def report(**changes):
    sections = [
        plots.Section(
            "Heads & <tails>",
            "One.\n\nTwo <b>.",
            [plots.head_heatmap([[0.5, np.nan]], name="induction score")],
            {"All": pd.DataFrame({"token": TOKENS, "score": [0.123456, np.nan, 1, 2, 3, 4]})},
        ),
        plots.Section("Tokens", plots.Html(plots.token_html(TOKENS, np.arange(6.0)))),
        plots.Section("Attention", figures=[plots.attention(pattern(), TOKENS)]),
    ]
    return plots.report_page("A <run>", "Verdict: 5 < 6.", **{"sections": sections, **changes})


def test_report_is_one_literal_file():
    text = report()
    assert text.count("plotly.js v") == 1
    assert "A &lt;run&gt;" in text
    assert "Verdict: 5 &lt; 6." in text
    assert "Heads &amp; &lt;tails&gt;" in text
    assert "<p>Two &lt;b&gt;.</p>" in text
    assert "<script>alert" not in text
    assert not re.findall(
        r"<(?:script|img)[^>]+src=|https?://(?!www\.w3)[^\"' ]+\.js\"", text[:9000]
    )


def test_report_says_in_words_what_its_figures_show():
    text = report()
    assert 'role="img" aria-label="Induction score of 1 × 2 heads.' in text
    assert "<figcaption>Induction score of 1 × 2 heads. Highest: L0H0 0.50" in text
    assert "<h3>Where does each token look?</h3>" in text
    assert "prefers-color-scheme: dark" in text
    assert "<td>0.1235</td>" in text
    assert text.count("<details>") == 2


def test_report_without_figures_carries_no_library():
    assert len(report(sections=[plots.Section("Empty", "Nothing yet.")])) < 20_000


def test_report_refuses_dark_figures():
    dark = plots.head_heatmap([[0.5]], theme="dark")
    with pytest.raises(ValueError, match="light figures"):
        report(sections=[plots.Section("x", figures=[dark])])
