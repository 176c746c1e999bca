"""What is said about attention: kept measurements are shown as such, and this model is asked."""

import json
from pathlib import Path

import pytest
import torch

from interp import report
from interp.report.claims import KEPT, claims_of, read_claims
from interp.report.said import said_of, score_variances
from tests.tiny_runs import tiny_config, trained

ROOT = Path(__file__).parents[1]
TOLD = {  # what each claim that was to be measured says, by subject
    "numbers": (
        "variance of q·k",
        "n×n float32 matrix",
        "half precision",
        "−inf gives NaN",
    ),
    "kernels": (
        "einsum is",
        "merged QKV",
        "contiguous memory",
        "fast path",
        "scaled_dot_product_attention is 2–4 times",
    ),
    "cost": ("Linear attention is faster", "O(n²d)", "Performer"),
    "models": (
        "window can't solve",
        "multi-query attention",
        "StreamingLLM",
        "near-uniform",
    ),
    "induction": ("grokking",),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    trained(folder, config=tiny_config(n_kv_heads=1))
    return report.analyze(folder)


def test_the_package_keeps_every_claim_with_its_machine_and_day():
    kept = read_claims(KEPT)
    assert [subject.subject for subject in kept] == list(TOLD)
    for subject in kept:
        for claim, words in zip(subject.claims, TOLD[subject.subject], strict=True):
            assert words in claim.claim
    for subject in kept:
        assert "cores" in subject.machine
        assert subject.when.endswith("UTC")
        assert all(claim.because and claim.path and claim.measured for claim in subject.claims)
    results = ROOT / "analyses" / "results" / KEPT.name
    assert results.read_bytes() == KEPT.read_bytes()


def test_the_page_shows_kept_claims_with_their_machine_and_a_runs_own_in_their_place(found):
    folder, kept = found.subject.folder, read_claims(KEPT)[0]
    page = report.write(found, folder / "report").read_text()
    assert "What is said about attention" in page
    assert f"{kept.when}: {kept.machine}" in page
    assert "scaled_dot_product_attention is 2–4 times" in page
    own = {"claim": "Heads sleep.", "measured": {"hours": 8}, "verdict": "does not hold"}
    own |= {"because": "They do not.", "path": "some.path"}
    subject = {"subject": "sleep", "when": "a night", "machine": "a bed", "claims": [own]}
    (folder / KEPT.name).write_text(json.dumps({"subjects": [subject]}))
    page = report.write(found, folder / "report").read_text()
    assert "Heads sleep." in page
    assert "a night: a bed" in page
    assert "scaled_dot_product_attention is 2–4 times" not in page
    numbers = json.loads((folder / "report" / "report.json").read_text())
    assert numbers["claims"] == [subject]
    assert len(numbers["said"]) == 5


def test_what_is_said_is_asked_of_this_model(found):
    uniform, variance, pattern, cache, induction = (said.here for said in said_of(found))
    near = len(found.statistics.near_uniform())
    assert uniform.startswith(f"{near} of 4 heads are near-uniform")
    assert f"{float(score_variances(found).max()):.2g}" in variance
    assert "n_ctx = 16 it takes 1 KiB a head, 4 KiB for all 4 heads" in pattern
    # one head of width 8, keys and values, two layers, four bytes
    assert "1 key/value heads for 2 query heads this model caches 128 bytes a token" in cache
    assert "multi-head would take 256 bytes" in cache
    assert induction.startswith("This model has 2 layers")


def test_the_variance_is_of_the_scores_that_the_model_computes(found):
    subject = found.subject
    tokens = subject.batch.tokens[:8]
    _, kept = subject.model.run_with_cache(tokens)
    for layer, row in enumerate(score_variances(found)):
        scores = kept["attn_scores", layer].transpose(0, 1).flatten(1)
        expected = torch.stack([s[s.isfinite()].var() for s in scores])
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not written by"),
        ("{", "not written by"),
        ('{"subjects": [{"subject": "a"}]}', "not written by"),
        (
            '{"subjects": [{"subject": "a", "when": "", "machine": "", "claims": [{"claim": "", '
            '"measured": {}, "verdict": "maybe", "because": "", "path": ""}]}]}',
            "got 'maybe'",
        ),
    ],
)
def test_a_broken_file_of_claims_is_refused(tmp_path, text, message):
    (tmp_path / KEPT.name).write_text(text)
    with pytest.raises(ValueError, match=message):
        claims_of(tmp_path)
