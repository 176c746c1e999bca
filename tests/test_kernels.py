import pytest
import torch
from torch.testing import assert_close

from interp.attention import AttentionCall, Causal, Full, Visible, Window, attention, fused
from interp.attention.functional import call_of
from interp.attention.kernels import materialised, pattern_of
from interp.attention.masks import positions_of
from interp.attention.positions import Alibi, alibi_slopes

RULES = {"causal": Causal(), "full": Full(), "window": Window(3)}
MASKS = {
    "none": None,
    "left": [[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]],
    "right": [[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]],
    "holes": [[0, 1, 0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 1, 1, 0, 1]],
    "empty example": [[0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]],
}


def qkv(generator, heads=4, kv_heads=2, n=8, d=6, dtype=torch.float32):
    shapes = [(2, heads, n, d), (2, kv_heads, n, d), (2, kv_heads, n, d)]
    return [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]


def visible(rule, mask, n=8):
    if mask is None:
        position = torch.arange(n)[None]
        return Visible(rule, position, position)
    real = torch.tensor(mask, dtype=torch.bool)
    position = positions_of(real)
    return Visible(rule, position, position, real, real, in_order=False)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_the_fused_route_gives_the_materialised_numbers(rule, mask, biased, soft_cap, generator):
    q, k, v = qkv(generator)
    bias = Alibi(tuple(alibi_slopes(4))) if biased else None
    call = AttentionCall(q, k, v, visible(RULES[rule], MASKS[mask]), 0.4, bias, soft_cap)
    fast, slow = fused(call), materialised(call)
    assert_close(fast, slow, atol=1e-5, rtol=1e-5)
    weights = torch.randn(fast.shape, generator=generator)
    for a, b in zip(
        torch.autograd.grad((fast * weights).sum(), (q, k, v)),
        torch.autograd.grad((slow * weights).sum(), (q, k, v)),
        strict=True,
    ):
        assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mask", MASKS)
def test_a_rule_counts_the_keys_that_its_grid_shows(rule, mask):
    seen = visible(RULES[rule], MASKS[mask])
    assert torch.equal(seen.count().expand(2, 1, 8), seen.grid().sum(-1).expand(2, 1, 8))


def test_a_window_sees_its_last_tokens_itself_among_them():
    grid = visible(Window(3), None).grid()[0, 0]
    assert [row.nonzero().flatten().tolist() for row in grid[:5]] == [
        [0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4],
    ]  # fmt: skip


def test_a_row_with_nothing_to_see_gives_zeros_and_finite_gradients(generator):
    q, k, v = qkv(generator, kv_heads=4, n=4)
    mask = torch.ones(4, 4).tril().bool()
    mask[0] = False
    out = attention(q, k, v, mask=mask, causal=False)
    out.sum().backward()
    assert (out[:, :, 0] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    call = call_of(q, k, v, mask=mask, causal=False, scale=None)
    assert (pattern_of(call)[:, :, 0] == 0).all()
    assert (materialised(call)[:, :, 0] == 0).all()


@pytest.mark.parametrize("n_queries", [1, 2, 3, 5, 7])
def test_causal_is_aligned_at_the_bottom_right(n_queries, generator):
    q = torch.randn(1, 1, n_queries, 8, generator=generator)
    k, v = torch.randn(2, 1, 1, 5, 8, generator=generator)
    mask = torch.ones(n_queries, 5).tril(5 - n_queries).bool()
    scores = ((q @ k.mT) / 8**0.5).masked_fill(~mask, -torch.inf)
    wanted = scores.softmax(-1).nan_to_num() @ v  # more queries than keys: the first see nothing
    assert_close(attention(q, k, v), wanted)


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("rule", RULES)
def test_junk_in_slots_that_no_query_may_see_has_no_influence(junk, rule, generator):
    q, k, v = (x.detach() for x in qkv(generator))
    seen = visible(RULES[rule], MASKS["holes"])
    clean = AttentionCall(q, k, v, seen, 0.4)
    hidden = ~seen.real_k[:, None, :, None]
    dirty = AttentionCall(q, k.masked_fill(hidden, junk), v.masked_fill(hidden, junk), seen, 0.4)
    for route in (fused, materialised):
        assert torch.equal(route(clean), route(dirty))


def test_junk_behind_an_explicit_mask_has_no_influence(generator):
    q, k, v = (x.detach() for x in qkv(generator, kv_heads=4))
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[:, 5] = False
    wanted = attention(q, k, v, mask=mask)
    k[:, :, 5], v[:, :, 5] = torch.nan, torch.inf
    assert torch.equal(attention(q, k, v, mask=mask), wanted)


def test_finite_junk_in_the_causal_future_has_no_influence(generator):
    q, k, v = (x.detach() for x in qkv(generator))
    wanted = attention(q, k, v)[:, :, :5]
    k[:, :, 5:], v[:, :, 5:] = 1e30, -1e30
    assert torch.equal(attention(q, k, v)[:, :, :5], wanted)


def test_strides_never_matter(generator):
    q, k, v = (x.detach() for x in qkv(generator, kv_heads=4))
    wanted = attention(q, k, v)
    strided = [torch.stack([x, x + 1], -1)[..., 0] for x in (q, k, v)]
    turned = [x.transpose(0, 3).contiguous().transpose(0, 3) for x in (q, k, v)]
    assert_close(attention(*strided), wanted, atol=1e-6, rtol=1e-5)
    assert_close(attention(*turned), wanted, atol=1e-6, rtol=1e-5)


def test_bad_input_is_refused_with_what_was_wanted(generator):
    q, k, v = (x.detach() for x in qkv(generator))
    with pytest.raises(TypeError, match="mask must be bools"):
        attention(q, k, v, mask=torch.zeros(8, 8))
    with pytest.raises(ValueError, match="does not broadcast"):
        attention(q, k, v, mask=torch.ones(7, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="four axes"):
        attention(q[0], k, v)
    with pytest.raises(ValueError, match="must divide the query heads"):
        attention(q, k[:, :1].expand(-1, 3, -1, -1), v[:, :1].expand(-1, 3, -1, -1))
    with pytest.raises(ValueError, match="window must be at least 1"):
        Window(0)


def test_half_precision_scores_are_accumulated_in_float32(generator):
    q, k, v = (x.detach() * 3 for x in qkv(generator, n=64) if x is not None)
    plain = {"mask": None, "causal": True, "scale": None}
    exact = materialised(call_of(*(x.double() for x in (q, k, v)), **plain))
    halves = [x.to(torch.bfloat16) for x in (q, k, v)]
    rounded = materialised(call_of(*(x.double() for x in halves), **plain))
    out = materialised(call_of(*halves, **plain))
    assert out.dtype == torch.bfloat16
    # bf16 keeps 8 bits: the pattern and the output are each rounded once, to 2^-8 of about 3·3
    assert (out.double() - rounded).abs().max() < 0.06
    assert (rounded - exact).abs().max() > 0  # the inputs' own rounding, not ours
