"""Statistics without the pattern equal those of the pattern."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.attention import AttentionCall, AttentionView, Full, Visible, Window, attention
from interp.attention.positions import Alibi, alibi_slopes
from tests import pattern_reference as reference

ROUTES = ("auto", "tiled")


def drawn(seed: int, b=2, h=4, kv=2, n_q=9, n_k=9, e=8, size=1.0):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(b, h, n_q, e, generator=g) * size
    return q, torch.randn(b, kv, n_k, e, generator=g) * size


@pytest.mark.parametrize("route", ROUTES)
def test_uniform_row_has_the_log_of_its_keys_and_a_pointing_one_none(route):
    q, k = torch.zeros(1, 2, 4, 4), torch.eye(4).expand(1, 2, 4, 4)
    q[:, 1] = 400 * torch.eye(4)  # head 1 looks at itself, with weight 1 − 3e⁻²⁰⁰
    view = AttentionView(q, k, route=route)
    torch.testing.assert_close(view.entropy()[0, 0], torch.arange(1.0, 5).log())
    assert view.entropy()[0, 1].abs().max() == 0
    torch.testing.assert_close(view.effective_keys()[0, 0], torch.arange(1.0, 5))
    normalized = view.entropy(normalized=True)[0]
    assert normalized[:, 0].isnan().all()
    torch.testing.assert_close(normalized[:, 1:], torch.tensor([[1.0] * 3, [0.0] * 3]))


@pytest.mark.parametrize("route", ROUTES)
def test_a_row_that_sees_nothing_has_no_mass_anywhere(route):
    q, k = drawn(0, n_q=5, n_k=5)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[0] = False
    view = AttentionView(q, k, mask, causal=False, route=route)
    assert (view.log_sum_exp()[:, :, 0] == -torch.inf).all()
    assert (view.entropy()[:, :, 0] == 0).all()
    assert view.entropy(normalized=True)[:, :, 0].isnan().all()
    assert (view.effective_keys()[:, :, 0] == 0).all()
    assert (view.pattern()[:, :, 0] == 0).all()
    assert (view.mean_of(torch.ones(5, 1))[:, :, 0] == 0).all()
    assert (view.max_weight()[:, :, 0] == 0).all()
    assert (view.top_keys(2).indices[:, :, 0] == -1).all()
    assert (view.renyi_entropy(2.0)[:, :, 0] == 0).all()
    assert view.log_sum_exp()[:, :, 1:].isfinite().all()


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    kv=st.sampled_from([1, 2, 4]),
    n_q=st.integers(1, 12),
    past=st.integers(-3, 8),
    kind=st.sampled_from(["causal", "full", "mask", "padding", "heads"]),
    size=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]),
    memory=st.sampled_from([1, 3000, 1 << 26]),
    route=st.sampled_from(ROUTES),
)
def test_every_statistic_equals_that_of_the_pattern(
    seed, kv, n_q, past, kind, size, dtype, memory, route
):
    n_k = max(1, n_q + past)
    q, k = (x.to(dtype) for x in drawn(seed, kv=kv, n_q=n_q, n_k=n_k, size=size))
    g = torch.Generator().manual_seed(seed)
    shape = {"mask": (n_q, n_k), "padding": (2, 1, 1, n_k), "heads": (2, 4, n_q, n_k)}
    mask = torch.rand(shape[kind], generator=g) < 0.7 if kind in shape else None
    seen = torch.ones(2, 4, n_q, n_k, dtype=torch.bool)
    if kind != "full":
        seen = seen & reference.causal(n_q, n_k)
    seen = seen if mask is None else seen & mask
    view = AttentionView(q, k, mask, kind != "full", memory=memory, route=route)
    s = reference.scores(q, k, seen=seen, scale=8**-0.5)
    agree(view, s, g)


def agree(view: AttentionView, s: torch.Tensor, g: torch.Generator, tol=1e-4) -> None:
    """1e-4 is what is promised in float32 for logits up to ×30."""
    p, n_q, n_k = reference.pattern(s), s.shape[2], s.shape[3]
    lse = s.logsumexp(-1)

    def same(got, want):
        torch.testing.assert_close(got.double(), want.double(), atol=tol, rtol=tol, equal_nan=True)

    same(view.log_sum_exp(), lse)
    same(view.entropy(), reference.entropy(p))
    count = (s > -torch.inf).sum(-1)
    assert (view.visible_keys() == count).all()
    most = count.clamp(min=2).double().log()
    same(
        view.entropy(normalized=True),
        (reference.entropy(p) / most).masked_fill(count < 2, torch.nan),
    )
    some = p.square().sum(-1)
    same(view.renyi_entropy(2.0), torch.where(some > 0, -some.clamp(min=1e-300).log(), 0.0))
    f = torch.randn(n_k, 3, generator=g)
    same(view.mean_of(f), p @ f.double())
    same(view.pattern(), p)
    same(view.max_weight(), p.amax(-1))
    at = torch.randint(-1, n_k, (2, n_q), generator=g)
    want = p.gather(3, at.clamp(min=0)[:, None, :, None].expand(-1, 4, -1, -1))[..., 0]
    same(view.weight_at(at), want.masked_fill((at < 0)[:, None], torch.nan))
    chosen = torch.rand(n_k, generator=g) < 0.5
    same(view.share_of(chosen), (p * chosen).sum(-1))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", ["alibi", "soft_cap", "window", "both"])
def test_biases_caps_and_windows(kind, route):
    q, k = drawn(3, n_q=12, n_k=12, size=2.0)
    pos = torch.arange(12)[None]
    bias = Alibi(tuple(alibi_slopes(4))) if kind in ("alibi", "both") else None
    cap = 5.0 if kind in ("soft_cap", "both") else None
    rule = Window(4) if kind == "window" else Full()
    call = AttentionCall(q, k, k, Visible(rule, pos, pos), 0.5, bias, cap)
    seen = rule(pos[:, :, None], pos[:, None, :])[:, None]
    added = None if bias is None else bias(pos, pos)
    s = reference.scores(q, k, seen=seen, scale=0.5, bias=added, soft_cap=cap)
    agree(AttentionView.of(call, route=route), s, torch.Generator().manual_seed(0))
    agree(AttentionView.of(call, route=route, memory=999), s, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [64, 1024])
@pytest.mark.parametrize("size", [1.0, 6.0, 30.0])
def test_large_logits_stay_within_promised_error(n, size):
    q, k = drawn(1, b=1, h=2, kv=1, n_q=n, n_k=n, e=16)
    k = k * size
    s = reference.scores(q, k, seen=reference.causal(n, n), scale=0.25)
    view = AttentionView(q, k)
    torch.testing.assert_close(view.log_sum_exp().double(), s.logsumexp(-1), atol=1e-4, rtol=1e-6)
    want = reference.entropy(s.softmax(-1))
    torch.testing.assert_close(view.entropy().double(), want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("route", ROUTES)
def test_logits_of_a_million_give_exact_entropies(route):
    g = torch.Generator().manual_seed(0)
    q = torch.randint(-3, 4, (1, 2, 20, 4), generator=g).float() * 1e3
    k = torch.randint(-3, 4, (1, 2, 20, 4), generator=g).float() * 1e3
    entropy = AttentionView(q, k, scale=1.0, route=route).entropy()
    s = reference.scores(q, k, seen=reference.causal(20, 20), scale=1.0)
    assert s[s > -torch.inf].abs().max() > 1e6
    want = reference.entropy(s.softmax(-1))
    assert want.max() > 0.5  # ties: not all rows point at one key
    torch.testing.assert_close(entropy.double(), want, atol=1e-6, rtol=0)


def test_no_queries_and_one_key():
    q, k = drawn(0, n_q=0, n_k=3)
    for route in ROUTES:
        assert AttentionView(q, k, route=route).entropy().shape == (2, 4, 0)
    q, k = drawn(0, n_q=1, n_k=1)
    view = AttentionView(q, k)
    assert (view.entropy() == 0).all()
    assert view.entropy(normalized=True).isnan().all()
    assert (view.weight_at(torch.tensor([0])) > 1 - 1e-6).all()


def test_junk_in_slots_that_nobody_sees_has_no_influence():
    q, k = drawn(0)
    real = torch.ones(2, 9, dtype=torch.bool)
    real[0, :3] = False
    clean = AttentionView(q, k, real[:, None, None, :])
    dirty = k.clone()
    dirty[0, :, :3] = torch.nan
    view = AttentionView(q, dirty, real[:, None, None, :])
    assert torch.equal(view.entropy(), clean.entropy())
    assert torch.equal(view.log_sum_exp(), clean.log_sum_exp())


def test_strides_do_not_matter():
    q, k = drawn(0)
    odd = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k)]
    assert odd[0].stride(-1) != 1
    torch.testing.assert_close(AttentionView(*odd).entropy(), AttentionView(q, k).entropy())


def test_top_keys_are_the_largest_weights_in_order():
    q, k = drawn(5, size=2.0)
    view = AttentionView(q, k, memory=2000)
    top = view.top_keys(3)
    weights, _ = view.pattern().topk(3, -1)
    torch.testing.assert_close(top.weights, weights)
    found = view.pattern().gather(3, top.indices.clamp(min=0))
    torch.testing.assert_close(found.masked_fill(top.indices < 0, 0.0), weights)
    assert (top.indices[:, :, 0, 1:] == -1).all()  # the first row sees one key
    assert AttentionView(q, k).top_keys(20).weights.shape[-1] == 20


def test_rows_and_heads_of_the_pattern():
    q, k = drawn(6)
    view = AttentionView(q, k)
    whole = view.pattern()
    torch.testing.assert_close(view.pattern(rows=[3, 7], heads=[2]), whole[:, [2]][:, :, [3, 7]])
    torch.testing.assert_close(view.pattern(rows=slice(2, 5)), whole[:, :, 2:5])


def test_renyi_orders_bracket_shannon_and_reach_the_ends():
    q, k = drawn(7, size=2.0)
    view = AttentionView(q, k)
    orders = [0, 0.5, 1, 2, 8, math.inf]
    found = torch.stack([view.renyi_entropy(a) for a in orders])
    assert (found[:-1] - found[1:]).min() > -1e-5  # never rises with the order
    torch.testing.assert_close(found[-1], -view.max_weight().log(), atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="order of at least 0"):
        view.renyi_entropy(-1)


def test_divergence_is_that_of_the_patterns_and_infinite_off_the_others_keys():
    q, k = drawn(8, size=2.0)
    q2, k2 = drawn(9, size=2.0)
    p, r = (AttentionView(*x).pattern().double() for x in ((q, k), (q2, k2)))
    want = torch.where(p > 0, p * (p.log() - r.log()), 0.0).sum(-1)
    for route in ROUTES:
        got = AttentionView(q, k, route=route).divergence_to(AttentionView(q2, k2))
        torch.testing.assert_close(got.double(), want, atol=1e-4, rtol=1e-4)
    assert AttentionView(q, k).divergence_to(AttentionView(q, k)).abs().max() < 1e-4
    full, causal = AttentionView(q, k, causal=False), AttentionView(q, k)
    assert (full.divergence_to(causal)[:, :, :-1] == torch.inf).all()
    assert causal.divergence_to(full).isfinite().all()
    with pytest.raises(ValueError, match="same batch, heads, queries and keys"):
        causal.divergence_to(AttentionView(q[:, :, :3], k))


def test_first_key_and_distance_know_padding():
    q, k = torch.zeros(1, 1, 6, 4), torch.zeros(1, 1, 6, 4)
    real = torch.tensor([[False, False, True, True, True, True]])
    pos = torch.tensor([[0, 0, 0, 1, 2, 3]])
    from interp.attention import Causal

    visible = Visible(Causal(), pos, pos, real, real, in_order=False)
    view = AttentionView.of(AttentionCall(q, k, k, visible, 1.0))
    first = view.first_key_share()[0, 0]
    assert first[:2].isnan().all()
    torch.testing.assert_close(first[2:], 1 / torch.arange(1.0, 5))
    away = view.mean_distance()[0, 0]
    assert away[:2].isnan().all()
    torch.testing.assert_close(away[2:], torch.tensor([0.0, 0.5, 1.0, 1.5]))


def test_what_cannot_be_served_is_refused():
    q, k = drawn(0)
    with pytest.raises(ValueError, match="no fused kernel serves"):
        AttentionView(q, k, soft_cap=3.0, route="fused").entropy()
    with pytest.raises(TypeError, match="mask must be bool"):
        AttentionView(q, k, torch.ones(9, 9))
    with pytest.raises(ValueError, match="from 0 to 8"):
        AttentionView(q, k).weight_at(torch.full((9,), 9))
    with pytest.raises(ValueError, match="for each query"):
        AttentionView(q, k).weight_at(torch.zeros(4).long())
    with pytest.raises(ValueError, match="features are"):
        AttentionView(q, k).mean_of(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="positive number of bytes"):
        AttentionView(q, k, memory=0)


def test_what_is_no_attention_is_refused():
    q, k = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8)
    for bad in (q.long(), q.double(), q.tolist()):
        with pytest.raises(TypeError, match="floats of one type"):
            attention(bad, k, k)
    with pytest.raises(TypeError, match="scale must be a number"):
        attention(q, k, k, scale="1")
    with pytest.raises(TypeError, match="mask must be bools"):
        attention(q, k, k, mask=[[True]])
    with pytest.raises(ValueError, match="route must be one of"):
        AttentionView(q, k, route="flash")


def test_rows_heads_and_features_that_are_not_there_are_refused():
    view = AttentionView(torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8))
    with pytest.raises(ValueError, match=r"rows must lie in \[0, 3\)"):
        view.pattern(rows=[3])
    with pytest.raises(ValueError, match=r"heads must lie in \[0, 4\)"):
        view.pattern(heads=[4])
    with pytest.raises(TypeError, match="features are a tensor"):
        view.mean_of([1, 2, 3, 4, 5])
