"""Every kind × dtype × shared heads × pads × chunk × route, against dense float64 attention.

Numbers, gradients, and which gradients are exactly 0. A new kind is one row.
"""

import itertools

import pytest
import torch

from interp.attention import MASKS, AttentionCall, Visible, fused, materialised, routes
from interp.attention.features import Featured
from interp.attention.masks import (
    BigBird,
    Causal,
    Full,
    Linear,
    Longformer,
    Performer,
    Streaming,
    Window,
)

# Of each kind, sizes that are no multiple of a block; N is longer than any window.
KINDS = {
    "causal": Causal(),
    "full": Full(),
    "window": Window(7),
    "streaming": Streaming(6, sinks=3),
    "longformer": Longformer(6, (0, 1, 30)),
    "longformer, both ways": Longformer(7, (0, 33), causal=False),
    "bigbird": BigBird(8, block=4, random_blocks=2),
    "linear": Linear(),
    "linear, both ways": Linear(causal=False),
    "performer": Performer(features=24),
}
# What the digits allow: sums of some 50 products of order 1, and half precision once rounded.
TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.bfloat16: 4e-2,
    torch.float16: 5e-3,
}
N = 53
PADS = {"none": [], "left": [0, 1, 2, 3, 4], "right": [48, 49, 50, 51, 52], "between": [9, 20, 21]}
CHUNKS = (N, 9, 1)
ROUTES = {"fused": fused, "materialised": materialised}

kinds = pytest.mark.parametrize("rule", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def _skip_however_short(monkeypatch):
    """Small tests run the computations that are meant for long sequences."""
    monkeypatch.setattr(routes, "SHORTEST", 0)
    monkeypatch.setattr(routes, "SHORTEST_PADDED", 0)


def test_every_kind_has_its_row():
    assert {type(rule) for rule in KINDS.values()} == set(MASKS.values())


def dense(call):
    """The definition, in float64; rows that see nothing are zeros."""
    q, k, v = (x.double() for x in (call.q, call.k, call.v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    rule = call.visible.rule
    if isinstance(rule, Featured):
        weight = rule.of_queries(q, call.scale) @ rule.of_keys(k, call.scale).mT
    else:
        weight = (call.scale * q @ k.mT).exp()
    weight = weight * call.visible.grid()
    total = weight.sum(-1, keepdim=True)
    return weight / torch.where(total == 0, 1, total) @ v


def drawn(dtype, kv_heads):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 4, N, 8), (2, kv_heads, N, 8), (2, kv_heads, N, 8)]
    return [(0.7 * torch.randn(s, generator=generator)).to(dtype).requires_grad_() for s in shapes]


def call_of(q, k, v, rule, *, pads, n_q):
    """The last queries of a call; the second example has no pads."""
    real = torch.ones(2, N, dtype=torch.bool)
    real[0, pads] = False
    position = (real.long().cumsum(-1) - 1).clamp(min=0) if pads else torch.arange(N)[None]
    last = slice(N - n_q, N)
    visible = Visible(
        rule,
        q_pos=position[:, last],
        k_pos=position,
        real_q=real[:, last] if pads else None,
        real_k=real if pads else None,
        in_order=not pads,
    )
    return AttentionCall(q[:, :, last], k, v, visible, scale=0.35)


@kinds
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_it_is_dense_attention_with_its_gradients(rule, kv_heads, dtype):
    for pads, n_q in itertools.product(PADS.values(), CHUNKS):
        inputs = drawn(dtype, kv_heads)
        call = call_of(*inputs, rule, pads=pads, n_q=n_q)
        expected = dense(call)
        weigh = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        wanted = torch.autograd.grad(expected, inputs, weigh.double())
        for name, route in ROUTES.items():
            z = route(call)
            where = f"{name}, {len(pads)} pads, {n_q} queries"
            assert z.dtype == dtype
            _assert_close(z, expected, TOLERANCE[dtype], where)
            for ours, theirs in zip(torch.autograd.grad(z, inputs, weigh), wanted, strict=True):
                _assert_close(ours, theirs, 4 * TOLERANCE[dtype], where)  # sums over rows


def _assert_close(ours, theirs, tolerance, where):
    how = {"rtol": tolerance, "atol": tolerance, "msg": lambda said: f"{where}: {said}"}
    torch.testing.assert_close(ours.double(), theirs.double(), **how)


@kinds
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("pads", PADS.values(), ids=PADS)
def test_what_is_out_of_sight_has_gradients_of_exactly_zero(rule, route, pads):
    q, k, v = drawn(torch.float64, 4)
    call = call_of(q, k, v, rule, pads=pads, n_q=N)
    seen, z = call.visible.grid().expand(2, 1, -1, -1)[:, 0], route(call)
    for row in (0, 8, 30, N - 1):
        of_k, of_v = torch.autograd.grad(z[:, :, row].sum(), (k, v), retain_graph=True)
        moved = of_v.abs().amax((1, 3)) > 0
        assert torch.equal(moved, seen[:, row])
        hidden = ~seen[:, row]
        assert (of_k.transpose(1, 2)[hidden] == 0).all()
