"""Ablation on models whose heads are known: set by hand, compiled, and trained by others."""

import json

import numpy as np
import pytest
import torch

from interp import ablation
from interp.metrics import accuracy, weighted_mean
from interp.sweeps import Examples
from interp.tasks import Batch
from tests import oracle
from tests.fixture_models import gbmi_indhead, tracr
from tests.llmviz import load_llmviz

# Sharper logits, so that the loss sees what the heads say.
CERTAIN = 10.0


@pytest.fixture(scope="module")
def circuit():
    model = oracle.model()
    model.W_U.mul_(CERTAIN)
    return model


@pytest.fixture(scope="module")
def asked():
    """Repeated blocks of distinct tokens; the second and third copies are asked for."""
    tokens = oracle.repeated(7)
    targets = torch.full_like(tokens, -100)
    targets[:, 8:-1] = tokens[:, 9:]
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)


@pytest.mark.parametrize("kind", ["zero", "mean", "grand_mean", "resample", "uniform", "optimal"])
def test_only_the_two_heads_of_the_circuit_matter(circuit, asked, kind):
    given = {} if kind in ("zero", "uniform") else {"reference": asked}
    if kind == "resample":
        given["generator"] = torch.Generator().manual_seed(0)
    effect = ablation.sweep(circuit, asked, kind=kind, **given).effect
    assert effect[0, 0] > 1  # previous token
    assert effect[1, 0] > 1  # induction
    decoys = effect[[0, 1], [1, 1]]
    if kind == "zero":
        assert decoys.abs().max() == 0
    torch.testing.assert_close(decoys, torch.zeros(2), atol=1e-6, rtol=0)


def test_holding_patterns_tells_key_composition_from_value_composition(circuit, asked):
    """The previous-token head acts through keys alone, the induction head through values."""
    held = ablation.sweep(circuit, asked, kind="pattern_preserving").effect
    assert abs(held[0, 0]) < 1e-6
    assert held[1, 0] > 1


def relay(head, at):
    """Read what the layer below wrote at this token, and say it."""
    oracle.look_back(0)(head, at)
    head.V[at.before, at.token] = 1.0
    head.O[at.token, at.out] = 1.0


def test_holding_patterns_does_not_hide_value_composition(asked):
    """A head that passes on what a previous-token head wrote: its patterns depend on nothing."""
    model = oracle.model(first=(oracle.previous, oracle.sink), second=(relay, oracle.sink))
    targets = torch.full_like(asked.tokens, -100)
    targets[:, 1:] = asked.tokens[:, :-1]  # it says the token before
    batch = Batch(asked.tokens, asked.mask, targets)
    model.W_U.mul_(CERTAIN)
    zero = ablation.sweep(model, batch).effect
    held = ablation.sweep(model, batch, kind="pattern_preserving").effect
    torch.testing.assert_close(held, zero, atol=1e-5, rtol=0)
    assert zero[0, 0] > 1


def test_the_direct_path_is_the_last_heads_alone(circuit, asked):
    direct = ablation.sweep(circuit, asked, kind="direct").effect
    assert direct[0, 0].abs() < 1e-6  # it writes where the logits don't look
    assert direct[1, 0] > 1


def test_heads_that_back_each_other_up_show_in_groups_and_pairs(asked):
    twins = (oracle.induction, oracle.induction)
    model = oracle.model(second=twins)
    model.W_U.mul_(CERTAIN)
    group = ablation.group(model, asked, heads=[(1, 0), (1, 1)])
    assert group.each.abs().max() < 0.01
    assert group.together > 1
    torch.testing.assert_close(group.cumulative[-1], group.together, atol=1e-5, rtol=0)
    torch.testing.assert_close(group.kept_alone, group.each.flip(0), atol=1e-5, rtol=0)
    pairs = ablation.pairwise(model, asked)
    assert pairs.interaction[1, 0, 1, 1] > 1
    given = ablation.conditional(model, asked, given=[(1, 0)])
    assert given.effect[1, 1] > 1
    assert given.effect[1, 0].isnan()


def test_one_circuits_heads_interact_negatively(circuit, asked):
    pairs = ablation.pairwise(circuit, asked)
    assert pairs.interaction[0, 0, 1, 0] < -1
    assert abs(pairs.interaction[0, 1, 1, 1]) < 1e-6


# --- third-party weights ------------------------------------------------------------------


@pytest.fixture(scope="module")
def letters(shared):
    stored = np.load(shared / "fixtures" / "gbmi_indhead" / "eval.npz")
    tokens = torch.from_numpy(stored["tokens"]).long()
    targets = torch.full_like(tokens, -100)
    targets[:, -1] = torch.from_numpy(stored["target"]).long()
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("zero", "dloss_zero"),
        ("mean", "dloss_mean"),
        ("pattern_preserving", "dloss_zero_pattern_preserving"),
    ],
)
def test_effects_on_gbmi_are_those_on_record(shared, letters, kind, field):
    model = gbmi_indhead(shared)
    expected = json.loads((shared / "fixtures/gbmi_indhead/expected.json").read_text())["heads"]
    given = {"reference": letters} if kind == "mean" else {}
    swept = ablation.sweep(model, letters, kind=kind, **given)
    for layer in range(2):
        wanted = expected[f"L{layer}H0"][field]
        assert abs(float(swept.effect[layer, 0]) - wanted) < 0.002  # as recorded to four digits
    assert abs(float(swept.clean) - 0.13707) < 1e-4


def test_accuracies_on_gbmi_are_those_on_record(shared, letters):
    model = gbmi_indhead(shared)
    expected = json.loads((shared / "fixtures/gbmi_indhead/expected.json").read_text())["heads"]
    asked = Examples(letters.tokens, None, letters.targets)
    for name, head in (("L0H0", (0, 0)), ("L1H0", (1, 0))):
        logits = ablation.ablate(model, letters.tokens, heads=[head])
        got = weighted_mean(accuracy(logits, asked), asked.weights)
        assert abs(float(got) - expected[name]["acc_zero"]) < 0.002


def test_the_uniform_head_of_length_is_essential(shared):
    """It counts, by looking at all keys alike: a uniform pattern in its place changes no row
    but that of BOS (which looks at itself), and cutting it all of them."""
    model = tracr(shared, "length")
    tokens = torch.tensor([[0, 1, 2, 3, 1]])
    clean = model(tokens)
    uniform = ablation.ablate(model, tokens, heads=[(0, 0)], kind="uniform")
    torch.testing.assert_close(uniform[:, 1:], clean[:, 1:], atol=1e-4, rtol=1e-4)
    cut = ablation.ablate(model, tokens, heads=[(0, 0)])
    assert ((cut - clean).abs().amax(-1)[:, 1:] > 0.5).all()


def test_of_frac_prevs_two_uniform_heads_one_is_dead(shared):
    model = tracr(shared, "frac_prevs")
    tokens = torch.tensor([[0, 2, 3, 3, 5]])
    clean = model(tokens)
    dead = ablation.ablate(model, tokens, heads=[(0, 0)])
    torch.testing.assert_close(dead, clean, atol=1e-5, rtol=0)
    essential = ablation.ablate(model, tokens, heads=[(1, 0)])
    assert (essential - clean).abs().max() > 0.4


@pytest.mark.parametrize("kind", ["zero", "mean", "uniform"])
def test_effects_on_llmviz_are_those_on_record(shared, kind):
    """The loss and accuracy on all sequences of six letters, three kinds, to four digits."""
    model = load_llmviz(shared).float()
    path = shared / "fixtures/llmviz_gpt_nano_sort/head_ablation.json"
    recorded = json.loads(path.read_text())
    batch = sorted_letters()
    given = {"reference": batch} if kind == "mean" else {}
    swept = ablation.sweep(model, batch, kind=kind, **given)
    for layer in range(3):
        for head in range(3):
            wanted = recorded[f"L{layer}H{head}"][kind][1]
            got = float(swept.effect[layer, head] + swept.clean)
            assert got == pytest.approx(wanted, rel=0.02, abs=2e-5), (layer, head)


def sorted_letters():
    """Every sequence of six letters out of three, and the same sorted."""
    letters = torch.cartesian_prod(*[torch.arange(3)] * 6)
    tokens = torch.cat([letters, letters.sort(1).values], 1)[:, :-1]
    targets = torch.full_like(tokens, -100)
    targets[:, 5:] = letters.sort(1).values
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)
