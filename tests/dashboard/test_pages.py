"""Every page, whatever is chosen: theme, run, checkpoint, prompt, pairwise."""

import pytest

from tests.dashboard.conftest import app, charts, healthy, words
from tests.dashboard.pairs import pairwise

PAGES = ("start", "heads", "attention", "predictions", "interventions", "circuit", "training")
PROMPTS = {
    "sample": {"sample": "3"},
    "one token": {"prompt": "typed", "typed": "1"},
    "repeated": {"prompt": "typed", "typed": "1 0 1 0 1 0 1 0 1 1 1 1"},
}
COMBINED = pairwise(
    {
        "page": PAGES,
        "theme": ("light", "dark"),
        "run": ("induction", "majority"),
        "step": ("0", "last", "none such"),
        "prompt": tuple(PROMPTS),
    }
)


@pytest.mark.parametrize("row", COMBINED, ids=lambda row: " ".join(map(str, row.values())))
def test_page_draws_whatever_is_chosen(row: dict):
    url = {"run": row["run"], **PROMPTS[row["prompt"]]}
    if row["step"] != "last":
        url["step"] = row["step"]
    at = healthy(app(row["page"], theme=row["theme"], **url))
    assert not at.error
    assert at.title[0].value
    for chart in charts(at):
        assert len(chart.alt) > 20  # a finding in words


def test_pairwise_rows_meet_every_pair_once_or_more():
    assert len(COMBINED) < 30
    assert {(r["page"], r["theme"]) for r in COMBINED} == {
        (p, t) for p in PAGES for t in ("light", "dark")
    }


@pytest.mark.parametrize(
    ("page", "url", "says"),
    [
        ("heads", {"metric": "uniformity"}, "near-uniform"),
        ("heads", {"metric": "Δloss", "over": "this prompt"}, "Δloss in nats"),
        ("heads", {"more": "true", "run_b": "induction"}, "compare"),
        ("attention", {"what": "score", "outline": "none"}, "before softmax"),
        ("attention", {"what": "value-weighted", "outline": "duplicate"}, "norm of the value"),
        ("interventions", {"cut": ["L0H0", "L1H1"], "kind": "mean"}, "Without L0H0 L1H1"),
        ("interventions", {"cut": "L9H9"}, "Choose heads"),
        ("circuit", {"through": "V"}, "Composition"),
        ("training", {"grown": "uniformity"}, "normalised entropy"),
    ],
)
def test_address_says_what_a_page_shows(page: str, url: dict, says: str):
    at = healthy(app(page, run="induction", **url))
    alts = " ".join(chart.alt for chart in charts(at))
    assert says.lower() in (words(at) + alts).replace("\\", "").lower()


def test_unknown_values_in_the_address_fall_back():
    at = healthy(app("heads", run="nonsense", layer="77", head="x", metric="?", pin="9999"))
    assert at.selectbox(key="run").value == "induction"
    assert at.pills(key="metric").value == "induction"
