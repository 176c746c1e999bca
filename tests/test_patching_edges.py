"""Edges and circuits: exact patching against paths, estimates against exact ones, known edges."""

import pytest
import torch

from interp import TransformerConfig, patching
from interp.metrics import logit_difference, weighted_mean
from interp.sweeps import examples_of
from tests import oracle
from tests.scrambled import scrambled
from tests.test_patching import induction_ends

SHAPES = {
    "mlp": {"d_mlp": 32},
    "attention only": {},
    "grouped, rotary": {"d_mlp": 32, "n_kv_heads": 1, "positional": "rotary"},
    "parallel": {"d_mlp": 32, "parallel": True},
}


def model_of(**options):
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_vocab": 12, "n_ctx": 12}
    return scrambled(TransformerConfig(**(sizes | options)))


@pytest.fixture(scope="module")
def ends():
    clean = torch.randint(12, (3, 8), generator=torch.Generator().manual_seed(0))
    corrupted = clean.clone()
    corrupted[:, 2] = (corrupted[:, 2] + 5) % 12
    return clean, corrupted


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_edges_between_heads_are_path_patching(ends, shape):
    model = model_of(**SHAPES[shape])
    edges = patching.edge_patching(model, *ends)
    senders = [edges.senders.index(f"L0H{h}") for h in range(2)]
    for through in "qkv":
        found = patching.path_patching(model, *ends, receivers=[(1, 0)], through=through)
        column = edges.receivers.index(f"L1H0.{through}")
        torch.testing.assert_close(
            edges.scores[senders, column], found.effect[0], atol=2e-5, rtol=0
        )
    direct = patching.path_patching(model, *ends).effect.flatten()
    senders = [edges.senders.index(f"L{n}H{h}") for n in range(2) for h in range(2)]
    torch.testing.assert_close(edges.scores[senders, -1], direct, atol=2e-5, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_edges_are_the_model_and_none_the_corrupted_run(ends, shape):
    model, asked = model_of(**SHAPES[shape]), examples_of(ends[0])
    edges = patching.edge_patching(model, *ends)
    for got, tokens in ((edges.clean, ends[0]), (edges.corrupted, ends[1])):
        with torch.no_grad():
            wanted = weighted_mean(logit_difference(model(tokens), asked), asked.weights)
        torch.testing.assert_close(got, wanted, atol=2e-5, rtol=0)
    curve = patching.faithfulness_curve(model, *ends, scores=edges)
    assert curve.faithfulness[0] == pytest.approx(0, abs=1e-3)
    assert curve.faithfulness[-1] == pytest.approx(1, abs=1e-3)
    assert curve.completeness[0] == pytest.approx(1, abs=1e-3)
    assert curve.completeness[-1] == pytest.approx(0, abs=1e-3)


def test_estimates_are_exact_for_edges_into_linear_logits(ends):
    model = model_of(normalization="none")
    exact = patching.edge_patching(model, *ends)
    estimate = patching.edge_attribution(model, *ends)
    torch.testing.assert_close(estimate.scores[:, -1], exact.scores[:, -1], atol=1e-4, rtol=1e-4)
    assert torch.equal(estimate.scores.isnan(), exact.scores.isnan())


def test_more_steps_come_closer(ends):
    model = model_of(d_mlp=32)
    exact = patching.edge_patching(model, *ends)
    there = ~exact.scores.isnan()

    def off(steps):
        found = patching.edge_attribution(model, *ends, steps=steps)
        return (found.scores - exact.scores)[there].square().mean().sqrt()

    assert off(8) < off(1)


def test_the_hand_set_circuit_is_its_edges():
    """Edges out of the input are what differs; of those between heads, one, through keys."""
    model, (clean, corrupted) = oracle.model(), induction_ends()
    exact = patching.edge_patching(model, clean, corrupted)
    heads = [
        (sender, receiver)
        for i, sender in enumerate(exact.senders)
        for j, receiver in enumerate(exact.receivers)
        if sender != "input" and abs(exact.scores[i, j].nan_to_num()) > 1e-6
    ]
    assert heads == [("L0H0", "L1H0.k"), ("L1H0", "logits")]
    curve = patching.faithfulness_curve(model, clean, corrupted, scores=exact)
    small = [f for n, f in zip(curve.n_edges, curve.faithfulness, strict=True) if n >= 8]
    assert min(small) == pytest.approx(1.0, abs=1e-5)


def found_edges(scores):
    """Every edge that is not 0."""
    rows, columns = (scores.scores.nan_to_num().abs() > 1e-6).nonzero(as_tuple=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return {(scores.senders[i], scores.receivers[j]) for i, j in pairs}


def test_saturated_edges_are_seen_with_steps_or_not_at_all():
    """At the clean run the softmax is flat: EAP gives the key edge 0, though it is everything.

    With steps, the edges are exactly those of exact patching, and every decoy's are 0.
    """
    model, (clean, corrupted) = oracle.model(), induction_ends()
    exact = found_edges(patching.edge_patching(model, clean, corrupted))
    assert exact == {
        ("input", "L0H0.v"), ("L0H0", "L1H0.k"), ("input", "L1H0.v"), ("L1H0", "logits"),
    }  # fmt: skip
    plain = patching.edge_attribution(model, clean, corrupted)
    assert found_edges(plain) == {("input", "L1H0.v"), ("L1H0", "logits")}
    # The softmax turns within 1/300 of the way, half way between the runs.
    integrated = patching.edge_attribution(model, clean, corrupted, steps=64)
    assert found_edges(integrated) == exact
    key_edge = integrated.scores[
        integrated.senders.index("L0H0"), integrated.receivers.index("L1H0.k")
    ]
    assert key_edge < -0.3
    assert found_edges(patching.edge_attribution(model, clean, corrupted, steps=5)) < exact


def test_circuits_are_the_largest_edges(ends):
    scores = patching.edge_attribution(model_of(), *ends)
    top = scores.top(5)
    assert [abs(s) for *_, s in top] == sorted((abs(s) for *_, s in top), reverse=True)
    assert int(scores.circuit(5).sum()) == 5
    with pytest.raises(ValueError, match="edges"):
        scores.circuit(10_000)


def test_edges_refuse_what_they_cannot_do(ends):
    model = model_of()
    scores = patching.edge_attribution(model, *ends)
    with pytest.raises(ValueError, match="another shape"):
        patching.faithfulness_curve(model_of(n_heads=4), *ends, scores=scores)
    with pytest.raises(ValueError, match="steps"):
        patching.edge_attribution(model, *ends, steps=0)
    with pytest.raises(ValueError, match="own write"):
        patching.edge_patching(model_of(post_normalization="rms_norm"), *ends)
    with pytest.raises(ValueError, match="faithful to"):
        patching.faithfulness_curve(model, ends[0], ends[0], scores=scores)


def test_everything_runs_under_the_hooks_that_are_given(ends):
    """With a head's z doubled, edges are those of the model whose W_O is doubled there."""
    model, other = model_of(d_mlp=32), model_of(d_mlp=32)
    with torch.no_grad():
        other.blocks[0].attn.W_O[1] *= 2

    def double(z, hook):
        assert len(z) == 3  # as if it ran alone
        z[:, :, 1] *= 2

    hooks = [("blocks.0.attn.hook_z", double)]
    for score in (patching.edge_patching, patching.edge_attribution):
        torch.testing.assert_close(
            score(model, *ends, hooks=hooks).scores,
            score(other, *ends).scores,
            atol=2e-5,
            rtol=1e-4,
            equal_nan=True,
        )
    told = []
    patching.edge_attribution(model, *ends, steps=3, progress=lambda *at: told.append(at))
    assert told == [(1, 3), (2, 3), (3, 3)]
    scores = patching.edge_patching(other, *ends)
    wanted = patching.faithfulness_curve(other, *ends, scores=scores)
    got = patching.faithfulness_curve(model, *ends, scores=scores, hooks=hooks)
    torch.testing.assert_close(got.value, wanted.value, atol=2e-5, rtol=1e-4)
