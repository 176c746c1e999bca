"""Routes that skip what they mask, against dense attention in float64. A new kind is one row."""

import pytest
import torch

from interp.attention import AttentionCall, Visible, fused, materialised, routes
from interp.attention.banded import banded
from interp.attention.masks import BigBird, Longformer, Streaming, Window
from interp.attention.positions import Alibi

# Sizes that are no multiple of any block, and longer than several of them.
KINDS = {
    "window": Window(7),
    "window of one": Window(1),
    "wide window": Window(45),
    "streaming": Streaming(7, sinks=3),
    "longformer": Longformer(6, (0, 1, 50)),
    "symmetric longformer": Longformer(7, (0, 33, 60), causal=False),
    "bigbird": BigBird(8, block=4, random_blocks=2),
    "bigbird without globals": BigBird(6, block=6, global_blocks=0, random_blocks=4, seed=2),
}
# What the number of significant digits allows: sums of 50 products of order 1.
TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.bfloat16: 4e-2,
    torch.float16: 5e-3,
}
kinds = pytest.mark.parametrize("rule", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def _skip_however_short(monkeypatch):
    """Small tests run the computations that are meant for long sequences."""
    monkeypatch.setattr(routes, "SHORTEST", 0)
    monkeypatch.setattr(routes, "SHORTEST_PADDED", 0)


def dense(q, k, v, seen, *, scale=0.3):
    """The definition, in float64; rows that see nothing are zeros."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    weight = (scale * q @ k.mT).exp() * seen
    total = weight.sum(-1, keepdim=True)
    return weight / torch.where(total == 0, 1, total) @ v


def drawn(n_q, n_k, *, dtype=torch.float64, kv_heads=2, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, 4, n_q, 8), (batch, kv_heads, n_k, 8), (batch, kv_heads, n_k, 8)]
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def call_of(q, k, v, rule, **visible):
    n_q, n_k = q.shape[2], k.shape[2]
    k_pos = torch.arange(n_k)[None]
    visible = {"q_pos": k_pos[:, n_k - n_q :], "k_pos": k_pos} | visible
    return AttentionCall(q, k, v, Visible(rule, **visible), scale=0.3)


def gradients(z, inputs):
    weights = torch.randn(z.shape, generator=torch.Generator().manual_seed(1)).to(z.dtype)
    return torch.autograd.grad(z, inputs, weights)


def assert_close(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


@kinds
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_skipping_equals_dense_attention_with_gradients(rule, kv_heads, dtype):
    inputs = drawn(101, 101, dtype=dtype, kv_heads=kv_heads)
    call = call_of(*inputs, rule)
    assert routes.can_skip(call)
    z = fused(call)
    expected = dense(*inputs, call.visible.grid())
    assert z.dtype == dtype
    assert_close([z], [expected], TOLERANCE[dtype])
    slack = 4 * TOLERANCE[dtype]  # gradients of k and v are sums over rows
    assert_close(gradients(z, inputs), gradients(expected, inputs), slack)


@kinds
def test_the_materialised_route_is_the_same(rule):
    call = call_of(*drawn(101, 101), rule)
    assert_close([fused(call)], [materialised(call)], 1e-10)


@kinds
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 97), (5, 97), (40, 130), (128, 131)])
def test_chunks_of_queries_equal_their_rows_of_the_whole(rule, n_q, n_k):
    q, k, v = drawn(n_k, n_k)
    whole = dense(q, k, v, call_of(q, k, v, rule).visible.grid())
    chunk = call_of(q[:, :, n_k - n_q :], k, v, rule)
    assert routes.can_skip(chunk)
    z = fused(chunk)
    assert_close([z], [whole[:, :, n_k - n_q :]], 1e-10)
    weights = torch.zeros_like(whole)
    weights[:, :, n_k - n_q :] = torch.randn(z.shape, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad(z, (q, k, v), weights[:, :, n_k - n_q :])
    assert_close(ours, torch.autograd.grad(whole, (q, k, v), weights), 1e-10)


@kinds
@pytest.mark.parametrize("side", ["left", "right", "between"])
def test_pads_are_neither_rows_nor_keys(rule, side):
    q, k, v = inputs = drawn(101, 101, batch=3)
    real = torch.ones(3, 101, dtype=torch.bool)
    pads = {"left": range(9), "right": range(92, 101), "between": range(20, 60, 3)}[side]
    real[0, list(pads)], real[2] = False, False
    position = (real.long().cumsum(-1) - 1).clamp(min=0)
    k.data[0, :, list(pads)], v.data[0, :, list(pads)] = float("nan"), float("inf")
    call = call_of(
        q, k, v, rule, q_pos=position, k_pos=position, real_q=real, real_k=real, in_order=False
    )
    assert routes.can_skip(call)
    z = fused(call)
    clean = [x.detach().nan_to_num(0, 0, 0).requires_grad_() for x in inputs]
    expected = dense(*clean, call.visible.grid())
    assert_close([z], [expected], 1e-10)
    assert (z.mT[~real[:, None, None].expand_as(z.mT)] == 0).all()
    assert_close(gradients(z, inputs), gradients(expected, clean), 1e-10)


@kinds
@pytest.mark.parametrize("how", ["soft_cap", "bias"])
def test_soft_caps_and_biases_take_the_same_route(rule, how):
    inputs = drawn(101, 101)
    given = {"soft_cap": 2.0} if how == "soft_cap" else {"bias": Alibi((0.5, 0.2, 0.1, 0.05))}
    visible = call_of(*inputs, rule).visible
    call = AttentionCall(*inputs, visible, scale=0.3, **given)
    assert routes.can_skip(call)
    assert_close([fused(call)], [materialised(call)], 1e-10)
    ours, theirs = (gradients(f(call), inputs) for f in (fused, materialised))
    assert_close(ours, theirs, 1e-10)


@kinds
def test_gradients_outside_the_receptive_field_are_exactly_zero(rule):
    q, k, v = drawn(101, 101, batch=1, kv_heads=4)
    call = call_of(q, k, v, rule)
    seen = call.visible.grid()[0, 0]
    for row in (0, 37, 50, 100):
        of_k, of_v = torch.autograd.grad(fused(call)[0, :, row].sum(), (k, v), retain_graph=True)
        moved = of_v[0].abs().amax((0, 2)) > 0
        assert torch.equal(moved, seen[row])
        assert (of_k[0, :, ~seen[row]] == 0).all()


@pytest.mark.parametrize("block", [1, 3, 8, 64])
def test_the_size_of_blocks_changes_nothing(block):
    inputs = drawn(75, 75)
    call = call_of(*inputs, Streaming(9, sinks=2))
    z = banded(call, before=8, far=(0, 1), block=block)
    assert_close([z], [materialised(call)], 1e-10)


def test_a_call_that_sees_most_keys_stays_dense():
    assert not routes.can_skip(call_of(*drawn(50, 50), Window(40)))
    extra = torch.ones(1, 1, 101, 101, dtype=torch.bool)
    assert not routes.can_skip(call_of(*drawn(101, 101), Window(7), extra=extra))


def test_short_calls_stay_dense_and_padded_ones_longer(monkeypatch):
    monkeypatch.undo()
    real = torch.ones(2, 300, dtype=torch.bool)
    assert not routes.can_skip(call_of(*drawn(101, 101), Window(7)))
    assert routes.can_skip(call_of(*drawn(300, 300), Window(7)))
    assert not routes.can_skip(call_of(*drawn(300, 300), Window(7), real_q=real, real_k=real))


def test_keys_that_are_not_the_first_ones_stay_dense():
    """A cache that dropped old keys: what is left does not stand at 0, 1, 2, …"""
    q, k, v = drawn(1, 40)
    position = torch.arange(60, 100)[None]
    visible = {"q_pos": position[:, -1:], "k_pos": position, "in_order": False}
    call = call_of(q, k, v, Window(7), **visible)
    assert not routes.can_skip(call)
    assert_close([fused(call)], [dense(q, k, v, call.visible.grid())], 1e-10)
