"""Cases D1 to D7: odd tokens, odd prompts, large ones, odd numbers, planted patterns."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
from interp.plots.export import array_of
from interp.plots.text import unescape
from tests.dashboard.conftest import FIRST_HOSTILE, HOSTILE, app, charts, healthy, words
from tests.oracle import model as oracle_model
from tests.oracle import previous, uniform

ALL_HOSTILE = " ".join(str(FIRST_HOSTILE + i) for i in range(len(HOSTILE)))


def spec_of(chart):
    return json.loads(chart.spec)


def payload(block) -> int:
    """Bytes that a page sends."""
    if hasattr(block, "children"):
        return sum(payload(child) for child in block.children.values())
    return block.proto.ByteSize() if block.proto is not None else 0


def test_invisible_tokens_are_visible_distinct_and_in_order(hostile: Path):
    at = healthy(app("attention", runs=[hostile], prompt="typed", typed=ALL_HOSTILE))
    axis = spec_of(charts(at)[0])["layout"]["yaxis"]
    labels = [unescape(text) for text in axis["ticktext"]]
    assert len(set(labels)) == len(HOSTILE)
    assert [label.split()[0] for label in labels] == [str(i) for i in range(len(HOSTILE))]
    for sign, label in zip("↵⇥·", labels, strict=False):
        assert sign in label


def test_markup_in_a_token_stays_text(hostile: Path):
    url = {"runs": [hostile], "prompt": "typed", "typed": ALL_HOSTILE}
    for page in ("start", "attention", "predictions", "interventions"):
        at = healthy(app(page, **url))
        for chart in charts(at):
            layout = spec_of(chart)["layout"]
            texts = layout.get("xaxis", {}).get("ticktext", [])
            assert not any("<b>" in text or "<script" in text for text in texts)
        for part in at.markdown:
            assert "**x**" not in part.value
            assert "<b>" not in part.value.replace("\\<b\\>", "")
        for part in at.get("html"):
            assert "<b>" not in part.proto.body
            assert "<script" not in part.proto.body


def test_same_token_many_times_keeps_its_rows(hostile: Path):
    typed = " ".join([str(FIRST_HOSTILE + 14)] * 12)
    at = healthy(app("attention", runs=[hostile], prompt="typed", typed=typed))
    heatmap = spec_of(charts(at)[0])["data"][0]
    assert array_of(heatmap["z"]).shape == (12, 12)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("1", ""),
        (" ", "the prompt is empty"),
        ("1 " * 25, "25 tokens, and this model reads 24"),
        ("1 nonsense", "is not one of this model's 20 tokens"),
    ],
)
@pytest.mark.parametrize("page", ["start", "attention"])
def test_short_empty_long_and_unknown_prompts_are_answered(tiny, page: str, typed: str, says: str):
    at = healthy(app(page, runs=[tiny()], prompt="typed", typed=typed))
    assert says in words(at)
    assert bool(at.error) == bool(says)


def test_large_model_and_long_prompt_stay_small(tiny):
    large = tiny(n_layers=12, n_heads=12, d_model=48, d_vocab=32, n_ctx=1024)
    typed = " ".join(str(i * i % 31) for i in range(1024))
    at = healthy(app("attention", runs=[large], prompt="typed", typed=typed))
    assert payload(at.main) + payload(at.sidebar) < 2_000_000
    assert "max-pooled 1,024 × 1,024 → 512 × 512" in words(at).replace("\\", "")
    assert "each cell is the largest of 16 × 16" in words(at).replace("\\", "")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_drawn(tiny, dtype: torch.dtype):
    folder = tiny(dtype=dtype)
    for page in ("start", "attention"):
        at = healthy(app(page, runs=[folder]))
        assert not at.error


@pytest.mark.parametrize("metric", ["first token", "uniformity"])
def test_numbers_that_are_none_are_marked_not_zero(tiny, tmp_path: Path, metric: str):
    model = interp.load(tiny())
    with torch.no_grad():
        model.blocks[0].attn.W_Q[1] = torch.nan
    at = healthy(app("heads", runs=[interp.save(model, tmp_path / "broken")], metric=metric))
    assert "crossed out" in words(at)
    heatmap = spec_of(charts(at)[0])["data"][0]
    values = array_of(heatmap["z"])
    assert np.isnan(values[0, 1])
    assert np.isfinite(values[0, 0])


def test_planted_previous_token_head_looks_where_labels_say(tmp_path: Path):
    folder = interp.save(oracle_model((previous, uniform)), tmp_path / "planted")
    at = healthy(app("attention", runs=[folder], layer="0", head="0", outline="previous"))
    spec = spec_of(charts(at)[0])
    values = array_of(spec["data"][0]["z"])
    rows = np.arange(2, len(values))
    np.testing.assert_allclose(values[rows, rows - 1], 1, atol=1e-3)
    assert spec["layout"]["yaxis"]["title"]["text"].startswith("query")
    assert spec["layout"]["xaxis"]["title"]["text"].startswith("key")
    assert spec["layout"]["yaxis"]["range"][0] > spec["layout"]["yaxis"]["range"][1]
