"""Every chart on every page: its question, axes, words, numbers, exports, and line of Python."""

import ast
import json
from functools import cache
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from apps import lines, sources
from interp import plots
from tests.dashboard.conftest import FOREIGN, app, charts, healthy

EVERYWHERE = {"run": "induction", "layer": "1", "head": "3", "pin": "30"}
SHOWN = {  # a page in a state where all its charts are drawn, and which those are
    "start": ({}, {"start-mosaic"}),
    "predictions of answers": (  # not of the next token
        {"run": "majority", "layer": "0", "head": "0"},
        {"token-loss", "logit-lens", "attribution"},
    ),
    "heads": (
        {"metric": "uniformity", "more": "true", "run_b": "induction", "step_b": "0"},
        {"heads-mosaic", "heads-comparison"},
    ),
    "attention": ({"what": "value-weighted"}, {"attention-pattern", "attention-thumbnails"}),
    "predictions": ({}, {"token-loss", "logit-lens", "attribution"}),
    "interventions": (
        {"cut": ["L1H0", "L1H3"], "kind": "mean"},
        {"group", "sweep-mosaic", "patching"},
    ),
    "circuit": ({}, {"circuit-induction", "composition-graph", "composition-map"}),
    "training": ({}, {"loss-curve", "score-curve", "heads-by-step"}),
}


@cache
def drawn(name: str):
    """A page with all its charts drawn, which nobody touches, and how many those are."""
    url, keys = SHOWN[name]
    at = healthy(app(name.split()[0], **EVERYWHERE | url))
    for label in ("Sweep all heads", "Patch"):
        for button in [b for b in at.button if b.label == label]:
            at = healthy(button.click().run())
    for key in keys:
        at.session_state[f"{key}-numbers"] = True
    return healthy(at.run()), len(keys)


def figure_of(chart) -> go.Figure:
    return go.Figure(json.loads(chart.spec))


def axes_of(fig: go.Figure) -> list[str]:
    """The axes that need a title; bars that lie have names beside them instead."""
    lying = any(trace.type == "bar" and trace.orientation == "h" for trace in fig.data)
    return ["xaxis"] if lying else ["xaxis", "yaxis"]


def drawn_by(code: str) -> go.Figure:
    """The figure that the last line of the code gives, as a notebook would show it."""
    tree = ast.parse(code)
    names: dict = {}
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    exec(compile(tree, "<page>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<page>", "eval"), names)


def numbers_in(fig: go.Figure) -> np.ndarray:
    """The numbers of a figure, without the words beside them."""
    table = plots.numbers(fig)
    column = "weight" if "evidence" in table else table.columns[-1]
    return table[column].to_numpy(dtype=float)


@pytest.mark.parametrize("page", SHOWN)
def test_every_chart_says_what_it_shows_and_can_be_taken_away(page):
    at, count = drawn(page)
    shown = charts(at)
    assert len(shown) == count
    headings = [part.value.replace("\\", "") for part in at.markdown]
    labels = [part.proto.popover.label for part in at.get("popover")]
    for chart in shown:
        fig = figure_of(chart)
        words = plots.about(fig)
        assert words.question.endswith("?")
        assert f"##### {words.question}" in headings
        assert len(chart.alt) > 20
        assert chart.alt == words.alt
        assert words.alt in headings  # the popover says it too
        assert words.formula in headings or not words.formula
        assert words.sign in headings or not words.sign
        for axis in axes_of(fig):
            assert any(fig.layout[name].title.text for name in fig.layout if axis in name), axis
        assert len(plots.numbers(fig))
    for what in ("Numbers", "Export"):
        assert labels.count(what) == len(shown)
    kinds = [button.proto.label for button in at.get("download_button")]
    for kind in ("CSV", "JSON", "HTML, self-contained"):
        assert kinds.count(kind) == len(shown)
    assert len(at.dataframe) >= len(shown)


@pytest.mark.parametrize("page", SHOWN)
def test_the_python_line_of_every_chart_draws_the_same_numbers(page):
    at, _ = drawn(page)
    codes = [part.value for part in at.code]
    shown = charts(at)
    assert len(codes) == len(shown)
    for chart, code in zip(shown, codes, strict=True):
        again = drawn_by(code)
        assert isinstance(again, plots.Figure)
        np.testing.assert_allclose(
            numbers_in(again), numbers_in(figure_of(chart)), rtol=1e-4, atol=1e-5,
            err_msg=plots.about(again).question,
        )  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_the_python_line_opens_models_of_other_libraries(shared: Path, name: str):
    path = shared / "fixtures" / name
    opened = sources.open_source("it", path, None, "key")
    names: dict = {}
    exec(lines.batch(opened, None), names)
    tokens = names["batch"].tokens
    with torch.no_grad():
        assert torch.equal(names["model"](tokens), opened.model(tokens))
