"""Sets of heads, pairs, importance, optimal constants: against runs alone, and known models."""

import pytest
import torch

from interp import TransformerConfig, ablation
from interp.ablation.constants import optimal_constants
from interp.ablation.groups import sets_together
from interp.metrics import logit_difference, loss, weighted_mean
from interp.sweeps import examples_of
from tests import oracle
from tests.scrambled import scrambled


@pytest.fixture(scope="module")
def model():
    return scrambled(
        TransformerConfig(n_layers=2, n_heads=3, d_model=24, d_vocab=16, n_ctx=20, d_mlp=48)
    )


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(16, (6, 12), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def lost(model, tokens):
    """What cutting these heads costs, in one run from the start."""
    asked = examples_of(tokens)

    def cost(heads, kind, **given):
        logits = ablation.ablate(model, tokens, heads=heads, kind=kind, **given)
        with torch.no_grad():
            clean = loss(model(tokens), asked)
        return float(weighted_mean(loss(logits, asked) - clean, asked.weights))

    return cost


KINDS = ["zero", "mean", "uniform", "pattern_preserving", "direct"]
close = {"abs": 1e-5}  # float32 across batch shapes


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_its_sets_cut_from_the_start(model, tokens, lost, kind):
    given = {"reference": tokens.flip(0)} if kind == "mean" else {}
    a, b, c = heads = [(1, 2), (0, 1), (0, 0)]
    group = ablation.group(model, tokens, heads=heads, kind=kind, **given)
    assert float(group.together) == pytest.approx(lost(heads, kind, **given), **close)
    for got, sets in (
        (group.each, [[a], [b], [c]]),
        (group.cumulative, [[a], [a, b], [a, b, c]]),
        (group.kept_alone, [[b, c], [a, c], [a, b]]),
    ):
        wanted = [lost(those, kind, **given) for those in sets]
        assert got.tolist() == pytest.approx(wanted, **close)
    low, high = group.interval("cumulative")
    assert (low <= group.cumulative).all()
    assert (group.cumulative <= high).all()
    assert list(group.frame()["head"]) == ["L1H2", "L0H1", "L0H0"]


def test_a_set_that_a_group_names_twice_is_cut_once(model, tokens):
    seen = []
    heads = [(1, 2), (0, 1)]
    found = ablation.group(
        model, tokens, heads=heads, progress=lambda done, total: seen.append(total)
    )
    assert seen[-1] == 3  # both, and each alone, which is what is kept of the other
    assert found.each.tolist() == found.kept_alone.flip(0).tolist()
    assert found.cumulative[-1] == found.together


def test_sets_are_cut_together_as_in_a_group(model, tokens):
    sets = [[(1, 2), (0, 1)], [(0, 0)]]
    found = sets_together(model, tokens, sets, kind="zero")
    groups = [ablation.group(model, tokens, heads=heads).together for heads in sets]
    torch.testing.assert_close(found, torch.stack(groups), atol=1e-5, rtol=0)


def test_random_sets_are_the_baseline_of_a_group(model, tokens):
    g = torch.Generator().manual_seed(3)
    group = ablation.group(model, tokens, heads=[(0, 1), (1, 1)], random_sets=5, generator=g)
    assert group.random.shape == (5,)
    assert all(len(set(name.split())) == 2 for name in group.random_heads)
    with pytest.raises(ValueError, match="generator"):
        ablation.group(model, tokens, heads=[(0, 1)], random_sets=5)
    with pytest.raises(ValueError, match="at least one"):
        ablation.group(model, tokens, heads=[])


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_and_conditions_are_their_sets_cut_from_the_start(model, tokens, lost, kind):
    given = {"reference": tokens.flip(0)} if kind == "mean" else {}
    pairs = ablation.pairwise(model, tokens, kind=kind, **given)
    after = ablation.conditional(model, tokens, given=[(0, 2), (1, 0)], kind=kind, **given)
    for a, b in [((0, 0), (0, 1)), ((0, 2), (1, 0)), ((1, 2), (0, 1)), ((1, 0), (1, 1))]:
        both = lost([a, b], kind, **given)
        assert float(pairs.joint[(*a, *b)]) == pytest.approx(both, **close)
        assert float(pairs.joint[(*b, *a)]) == pytest.approx(both, **close)
        apart = lost([a], kind, **given) + lost([b], kind, **given)
        assert float(pairs.interaction[(*a, *b)]) == pytest.approx(both - apart, abs=3e-5)
    for head in [(0, 0), (1, 2)]:
        extra = lost([(0, 2), (1, 0), head], kind, **given) - lost([(0, 2), (1, 0)], kind, **given)
        assert float(after.effect[head]) == pytest.approx(extra, **close)
    assert after.effect[0, 2].isnan()
    assert after.given == ("L0H2", "L1H0")
    assert not after.p_values().isnan()[0, 0]


# --- importance ---------------------------------------------------------------------------


def test_pairs_may_be_of_some_heads(model, tokens):
    every = ablation.pairwise(model, tokens)
    heads = [(1, 0), (0, 1), (0, 0)]
    some = ablation.pairwise(model, tokens, heads=heads)
    torch.testing.assert_close(some.interaction[0, 1, 1, 0], every.interaction[0, 1, 1, 0])
    torch.testing.assert_close(some.effect[0, 0], every.effect[0, 0])
    assert int((~some.interaction.isnan()).sum()) == 3 * 2
    assert some.effect.isnan().sum() == every.effect.numel() - 3
    assert len(some.strongest(10)) == 3
    assert {at for *pair, _ in some.strongest(10) for at in pair} == set(heads)
    with pytest.raises(ValueError, match="two heads, there is 1"):
        ablation.pairwise(model, tokens, heads=[(0, 1)])


def test_importance_is_the_gradient_of_a_gate(model, tokens):
    """Against finite differences of a factor on z, per example, absolute before averaging."""
    found = ablation.importance(model, tokens)
    asked, step = examples_of(tokens), 1e-2

    def at(factor):
        def scale(z, hook):
            z[:, :, 1] *= factor

        with torch.no_grad():
            return logit_difference(model(tokens, hooks=[("blocks.1.attn.hook_z", scale)]), asked)

    slope = ((at(1 + step) - at(1 - step)) / (2 * step)).abs()
    torch.testing.assert_close(found.per_example[1, 1], slope, atol=2e-3, rtol=0)
    torch.testing.assert_close(
        found.importance[1, 1], weighted_mean(found.per_example[1, 1], asked.weights)
    )


def test_absolute_after_averaging_would_be_smaller(model, tokens):
    from interp.ablation.gradients import gate_gradients

    signed = gate_gradients(model, examples_of(tokens), "logit_difference")
    summed = signed.mean(-1).abs()
    found = ablation.importance(model, tokens, exact=False).importance
    assert (summed < found - 1e-4).any()


def test_importance_reports_how_it_ranks_against_the_exact_sweep(tokens):
    """Through a saturated softmax there is no gradient: the previous-token head is overlooked."""
    model = oracle.model(n_tokens=16, n_ctx=20)
    repeated = oracle.repeated(5, n_tokens=16)
    found = ablation.importance(model, repeated)
    assert found.importance[1, 0] > 0.3
    assert found.importance[0, 0] == 0
    assert found.exact[0, 0] < -0.5
    assert found.rank_correlation < 0.8
    assert ablation.importance(model, repeated, exact=False).rank_correlation is None


def test_rank_correlation_shares_ties():
    from interp.ablation.gradients import rank_correlation

    a, b = torch.tensor([[1.0, 2.0], [2.0, 3.0]]), torch.tensor([[1.0, 3.0], [2.0, 4.0]])
    # ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: covariance 4.5, variances 4.5 and 5
    assert rank_correlation(a, b) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert rank_correlation(a, -b) == pytest.approx(-4.5 / (4.5 * 5) ** 0.5)


def test_layers_are_normalised_on_request(model, tokens):
    found = ablation.importance(model, tokens, exact=False, normalize_layers=True)
    torch.testing.assert_close(found.importance.norm(dim=1), torch.ones(2))


def test_a_metric_without_gradient_is_refused(model, tokens):
    with pytest.raises(ValueError, match="no gradient"):
        ablation.importance(model, tokens, metric="accuracy")


def test_no_gradient_is_left_on_the_model(model, tokens):
    ablation.importance(model, tokens)
    ablation.sweep(model, tokens, kind="optimal", reference=tokens)
    assert all(p.grad is None for p in model.parameters())


# --- optimal ------------------------------------------------------------------------------


def test_optimal_is_never_worse_where_it_was_fitted(model, tokens):
    best = ablation.sweep(model, tokens, kind="optimal", reference=tokens).effect
    zero = ablation.sweep(model, tokens).effect
    mean = ablation.sweep(model, tokens, kind="mean", reference=tokens).effect
    slack = 1e-5  # batch shapes of the fit and the sweep
    assert (best <= zero + slack).all()
    assert (best <= mean + slack).all()
    assert (best < torch.minimum(zero, mean) - 0.01).any()


def test_optimal_tells_how_far_it_is_and_can_be_cancelled(model, tokens):
    told = []
    examples = examples_of(tokens, None)
    optimal_constants(model, examples, steps=3, progress=lambda *at: told.append(at))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]

    class CancelledError(Exception):
        pass

    def cancel(done, total):
        raise CancelledError

    with pytest.raises(CancelledError):
        optimal_constants(model, examples, steps=3, progress=cancel)


def test_optimal_is_fitted_apart_from_what_it_is_judged_on(model, tokens):
    other = torch.randint(16, (6, 12), generator=torch.Generator().manual_seed(9))
    apart = ablation.sweep(model, tokens, kind="optimal", reference=other).effect
    own = ablation.sweep(model, tokens, kind="optimal", reference=tokens).effect
    assert (apart > own).all()
    with pytest.raises(ValueError, match="reference="):
        ablation.sweep(model, tokens, kind="optimal")
