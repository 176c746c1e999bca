"""Linear attention and Performers: three forms of one sum, and unbiased features."""

import math

import pytest
import torch

from interp.attention import AttentionCall, AttentionView, Visible, attend, features, fused
from interp.attention.by_features import SEGMENT
from interp.attention.kernels import materialised, pattern_of
from interp.attention.linear import Linear
from interp.attention.performer import (
    Performer,
    directions,
    positive_features,
    redrawn,
    trigonometric_features,
)
from interp.hooks import Tap

RULES = {
    "linear": Linear(),
    "bidirectional linear": Linear(causal=False),
    "performer": Performer(features=24),
    "trigonometric performer": Performer(features=400, kind="trigonometric"),
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def drawn(n_q, n_k, *, dtype=torch.float64, kv_heads=2, batch=2, size=0.5):
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, 4, n_q, 8), (batch, kv_heads, n_k, 8), (batch, kv_heads, n_k, 8)]
    return [
        (size * torch.randn(s, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()
        for s in shapes
    ]


def call_of(q, k, v, rule, **visible):
    n_q, n_k = q.shape[2], k.shape[2]
    k_pos = torch.arange(n_k)[None]
    visible = {"q_pos": k_pos[:, n_k - n_q :], "k_pos": k_pos} | visible
    return AttentionCall(q, k, v, Visible(rule, **visible), scale=0.3)


def dense(call):
    """Weights spelled out, straight from the definition."""
    rule, heads = call.visible.rule, call.q.shape[1]
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (call.k, call.v))
    weight = rule.of_queries(call.q, call.scale) @ rule.of_keys(k, call.scale).mT
    weight = weight * call.visible.grid()
    total = weight.sum(-1, keepdim=True)
    return weight / torch.where(total == 0, 1, total) @ v


def assert_close(ours, theirs, tolerance=1e-10):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 63, 64, 130])
def test_recurrent_chunked_and_quadratic_forms_are_one(n, generator):
    q, k = (torch.rand(2, 3, n, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    v = torch.randn(2, 3, n, 4, generator=generator, dtype=torch.float64)
    expected = features.quadratic(q, k, v)
    assert_close(features.recurrent(q, k, v), expected)
    assert_close(features.chunked(q, k, v), expected)


@rules
@pytest.mark.parametrize(("n_q", "n_k"), [(131, 131), (1, 90), (40, 131)])
def test_features_equal_their_implied_weights_with_gradients(rule, n_q, n_k):
    inputs = drawn(n_q, n_k)
    call = call_of(*inputs, rule)
    z, expected = fused(call), dense(call)
    assert_close(z, expected)
    assert_close(materialised(call), expected)
    ours, theirs = (torch.autograd.grad(x.sin().sum(), inputs) for x in (z, expected))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, 1e-9)


@rules
def test_pads_are_neither_rows_nor_keys(rule):
    q, k, v = inputs = drawn(90, 90)
    real = torch.ones(2, 90, dtype=torch.bool)
    real[0, :9], real[1, 30:50:2] = False, False
    position = (real.long().cumsum(-1) - 1).clamp(min=0)
    k.data[0, :, :9], v.data[1, :, 30:50:2] = float("nan"), float("inf")
    visible = {"q_pos": position, "k_pos": position, "real_q": real, "real_k": real}
    call = call_of(q, k, v, rule, **visible, in_order=False)
    z = fused(call)
    clean = call_of(*(x.detach().nan_to_num(0, 0, 0) for x in inputs), rule, **visible)
    assert_close(z, dense(clean))
    assert all(g.isfinite().all() for g in torch.autograd.grad(z.sum(), inputs))


@rules
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_low_precision_accumulates_in_float32(rule, dtype):
    q, k, v = drawn(150, 150, dtype=dtype)
    z = fused(call_of(q, k, v, rule))
    exact = dense(call_of(q.double(), k.double(), v.double(), rule))
    assert z.dtype == dtype
    slack = {torch.float32: 1e-4, torch.bfloat16: 2e-2}[dtype]  # bf16 rounds once, at the end
    torch.testing.assert_close(z.double(), exact, rtol=slack, atol=slack)


def test_segments_carry_their_state_on():
    call = call_of(*drawn(2 * SEGMENT + 77, 2 * SEGMENT + 77, batch=1, kv_heads=4), Linear())
    q, k, v = (x.detach() for x in (call.q, call.k, call.v))
    expected = features.chunked(torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1, v)
    assert_close(fused(call).detach(), expected)


@rules
def test_constant_values_come_out_unchanged(rule):
    q, k, v = drawn(70, 70)
    assert_close(fused(call_of(q, k, torch.ones_like(v), rule)), torch.ones_like(q))


@pytest.mark.parametrize("rule", [r for r in RULES.values() if r.causal], ids=str)
def test_no_gradient_comes_from_the_future(rule):
    q, k, v = drawn(70, 70, batch=1, kv_heads=4)
    for g in torch.autograd.grad(fused(call_of(q, k, v, rule))[0, :, 40].sum(), (k, v)):
        assert (g[0, :, 41:] == 0).all()
        assert (g[0, :, :41] != 0).any(-1).all()


def test_a_pattern_hook_reads_the_implied_weights_and_editing_them_acts():
    call = call_of(*drawn(20, 20), Linear())
    seen = []
    read = Tap({"hook_pattern": [lambda p, hook: seen.append(p)]})
    assert_close(attend(call, read), fused(call))
    assert_close(seen[0].sum(-1), torch.ones_like(seen[0][..., 0]))
    cut = attend(call, Tap({"hook_pattern": [lambda p, hook: torch.zeros_like(p)]}))
    assert (cut == 0).all()
    doubled = Tap({"hook_attn_scores": [lambda s, hook: 2 * s]})
    squared = pattern_of(call).square()
    v = call.v.repeat_interleave(2, 1)
    assert_close(attend(call, doubled), squared / squared.sum(-1, keepdim=True) @ v)


@pytest.mark.parametrize("rule", [RULES["linear"], RULES["performer"]], ids=["linear", "performer"])
def test_statistics_are_those_of_the_implied_weights(rule):
    call = call_of(*drawn(30, 30), rule)
    view, p = AttentionView.of(call), pattern_of(call)
    entropy = -(p * p.clamp(min=1e-300).log()).sum(-1)
    assert_close(view.entropy(), entropy, 1e-8)
    assert_close(view.weight_at(torch.zeros(30, dtype=torch.long)), p[..., 0], 1e-8)
    for ours, theirs in zip(
        torch.autograd.grad(view.entropy().sum(), (call.q, call.k)),
        torch.autograd.grad(entropy.sum(), (call.q, call.k)),
        strict=True,
    ):
        assert_close(ours, theirs, 1e-8)
    with pytest.raises(ValueError, match="Rényi"):
        view.renyi_entropy(2.0)


def test_what_only_softmax_has_is_refused():
    q, k, v = drawn(8, 8)
    visible = call_of(q, k, v, Linear()).visible
    for given in ({"soft_cap": 3.0}, {"bias": lambda q_pos, k_pos: q_pos}):
        with pytest.raises(ValueError, match="neither a bias"):
            attend(AttentionCall(q, k, v, visible, 0.3, **given))
    signed = call_of(q, k, v, RULES["trigonometric performer"])
    with pytest.raises(ValueError, match="may be negative"):
        attend(signed, Tap({"hook_attn_scores": [lambda s, hook: None]}))


# --- random features ------------------------------------------------------------------------


def vectors(d=8):
    generator = torch.Generator().manual_seed(1)
    return 0.2 * torch.randn(2, d, generator=generator, dtype=torch.float64)


def estimates(feature, m, *, orthogonal):
    """Many estimates of exp(x·y); groups of d directions are drawn apart, so m is whole groups."""
    x, y = vectors()
    draws, d, generator = 160_000 // len(x), len(x), torch.Generator().manual_seed(2)
    w = directions(m * draws, d, generator=generator, orthogonal=orthogonal).view(draws, m, d)
    return (feature(x, w) * feature(y, w)).sum(-1), float((x @ y).exp())


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("feature", [positive_features, trigonometric_features])
def test_features_are_unbiased(feature, orthogonal):
    found, exact = estimates(feature, 8, orthogonal=orthogonal)
    error = float(found.std()) / len(found) ** 0.5
    assert abs(float(found.mean()) - exact) < 4 * error


@pytest.mark.parametrize("feature", [positive_features, trigonometric_features])
def test_mean_squared_error_is_what_the_paper_says(feature):
    m, (x, y) = 16, vectors()
    found, exact = estimates(feature, m, orthogonal=False)
    both, apart = float((x + y).square().sum()), float((x - y).square().sum())
    if feature is positive_features:
        expected = math.exp(both) * exact**2 * (1 - math.exp(-both)) / m
    else:
        expected = math.exp(both) * exact**-2 * (1 - math.exp(-apart)) ** 2 / (2 * m)
    measured = float((found - exact).square().mean())
    assert measured == pytest.approx(expected, rel=0.1)  # 20,000 draws, heavy tails


def test_orthogonal_directions_lower_the_error_by_at_least_what_the_paper_says():
    """The errors differ by what two features of one draw have in common: E[ab] − SM²."""
    d = m = 3
    x = y = torch.full((d,), 0.3, dtype=torch.float64)
    generator, draws = torch.Generator().manual_seed(2), 100_000
    w = directions(m * draws, d, generator=generator).view(draws, m, d)
    each = m * positive_features(x, w) * positive_features(y, w)
    pairs = (each.sum(-1).square() - each.square().sum(-1)) / (m * (m - 1))
    exact, error = float((x @ y).exp()), float(pairs.std()) / draws**0.5
    bound = 2 / (d + 2) * (exact - math.exp(-float(x @ x + y @ y) / 2)) ** 2
    assert float(pairs.mean()) - exact**2 <= -bound + 4 * error
    assert 4 * error < bound  # the same draw tells orthogonal directions from independent ones


def test_error_falls_as_one_over_the_number_of_features():
    sizes = torch.tensor([8.0, 16.0, 64.0])
    errors = []
    for m in sizes:
        found, exact = estimates(positive_features, int(m), orthogonal=False)
        errors.append(float((found - exact).square().mean()))
    slope = math.log(errors[-1] / errors[0]) / math.log(float(sizes[-1] / sizes[0]))
    assert slope == pytest.approx(-1, abs=0.1)


def test_orthogonal_directions_are_orthogonal_and_as_long_as_independent_ones(generator):
    w = directions(2000, 8, generator=generator)
    gram = w[:8] @ w[:8].mT
    assert_close(gram, gram.diagonal().diag(), 1e-12)
    # the mean of 2,000 draws of χ²(8), whose deviation is 4
    assert float(w.square().sum(-1).mean()) == pytest.approx(8, abs=4 * 4 / 2000**0.5)


def test_many_features_come_close_to_softmax():
    q, k, v = (x.detach() for x in drawn(40, 40))
    exact = (0.3 * q @ k.repeat_interleave(2, 1).mT).masked_fill(
        torch.ones(40, 40).triu(1).bool(), -torch.inf
    )
    exact = exact.softmax(-1) @ v.repeat_interleave(2, 1)
    gaps = [
        float((fused(call_of(q, k, v, Performer(features=m))) - exact).abs().mean())
        for m in (16, 4096)
    ]
    assert gaps[1] < 0.01 < gaps[0]


def test_large_keys_and_queries_stay_finite():
    q, k, v = drawn(40, 40, dtype=torch.float32, size=30)
    assert fused(call_of(q, k, v, Performer(features=16))).isfinite().all()


def test_seed_draws_directions_and_redrawn_changes_them(generator):
    rule = Performer(features=8)
    inputs = drawn(20, 20)
    first = fused(call_of(*inputs, rule))
    assert torch.equal(first, fused(call_of(*inputs, Performer(features=8))))
    other = redrawn(rule, generator)
    assert other.features == 8
    assert not torch.allclose(first, fused(call_of(*inputs, other)))
