"""Gradients of pattern statistics equal those of float64 autograd through the pattern."""

import pytest
import torch

from interp.attention import AttentionCall, AttentionView, Causal, Full, Visible, Window
from interp.attention.positions import Alibi, alibi_slopes
from tests import pattern_reference as reference

KINDS = ["causal", "full", "padding", "window", "alibi", "soft_cap", "empty rows"]


def call_of_kind(kind: str, q, k) -> AttentionCall:
    n = q.shape[2]
    pos = torch.arange(n)[None]
    rule = {"full": Full(), "window": Window(3)}.get(kind, Causal())
    visible = Visible(rule, pos, pos)
    if kind == "padding":
        real = torch.ones(2, n, dtype=torch.bool)
        real[0, :3] = False
        at = (real.long().cumsum(-1) - 1).clamp(min=0)
        visible = Visible(rule, at, at, real, real, in_order=False)
    if kind == "empty rows":
        visible = Visible(rule, pos, pos, extra=(torch.arange(n) > 2)[None, None, None])
    bias = Alibi(tuple(alibi_slopes(4))) if kind == "alibi" else None
    return AttentionCall(q, k, k, visible, 0.5, bias, 4.0 if kind == "soft_cap" else None)


def plain(call: AttentionCall, q, k):
    """Scores and pattern in float64, for autograd."""
    bias = None if call.bias is None else call.bias(call.visible.q_pos, call.visible.k_pos)
    seen = call.visible.grid().expand(2, 4, -1, -1)
    s = reference.scores(q, k, seen=seen, scale=0.5, bias=bias, soft_cap=call.soft_cap)
    return s, reference.pattern(s)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["entropy", "log_sum_exp", "mean_of", "weight_at", "renyi"])
@pytest.mark.parametrize("memory", [2000, 1 << 26])
def test_gradients_equal_those_of_float64_autograd(kind, what, memory, generator):
    n = 10
    q, k = (
        torch.randn(2, 4, n, 8, generator=generator),
        torch.randn(2, 2, n, 8, generator=generator),
    )
    f = torch.randn(n, 3, generator=generator)
    at = torch.randint(-1, n, (2, n), generator=generator)
    weigh = torch.randn(2, 4, n, 3, generator=generator)

    def ours(q, k, f):
        view = AttentionView.of(call_of_kind(kind, q, k), memory=memory)
        if what == "mean_of":
            return view.mean_of(f)
        if what == "weight_at":
            return view.weight_at(at).nan_to_num()[..., None]
        if what == "renyi":
            return view.renyi_entropy(2.0)[..., None]
        if what == "entropy":
            return view.entropy()[..., None]
        return view.log_sum_exp().nan_to_num(neginf=0.0)[..., None]

    def theirs(q, k, f):
        s, p = plain(call_of_kind(kind, q, k), q, k)
        empty = (s == -torch.inf).all(-1)
        if what == "mean_of":
            return p @ f
        if what == "weight_at":
            index = at.clamp(min=0)[:, None, :, None].expand(-1, 4, -1, -1)
            return p.gather(3, index) * (at >= 0)[:, None, :, None]
        if what == "renyi":
            return -(p.square().sum(-1) + empty).log()[..., None]
        if what == "entropy":
            return -(p * (p + (p == 0)).log()).sum(-1)[..., None]
        return s.masked_fill(empty[..., None], 0.0).logsumexp(-1).masked_fill(empty, 0.0)[..., None]

    got = gradients(ours, (q, k, f), weigh)
    want = gradients(theirs, (q.double(), k.double(), f.double()), weigh.double())
    for a, b in zip(got[:2] if what != "mean_of" else got, want, strict=False):
        assert a.isfinite().all()
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=1e-4)
        assert torch.cosine_similarity(a.double().flatten(), b.flatten(), dim=0) > 0.9999


def gradients(function, inputs, weigh):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    (out * weigh[..., : out.shape[-1]]).sum().backward()
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in inputs]


def test_half_precision_gradients_come_back_in_half_precision(generator):
    q = torch.randn(1, 2, 6, 8, generator=generator).bfloat16().requires_grad_()
    k = torch.randn(1, 2, 6, 8, generator=generator).bfloat16()
    AttentionView(q, k).entropy().sum().backward()
    assert q.grad is not None
    assert q.grad.dtype == torch.bfloat16
    assert q.grad.abs().max() > 0


def test_two_backward_passes_through_one_view(generator):
    q = torch.randn(1, 2, 6, 8, generator=generator, requires_grad=True)
    view = AttentionView(q, torch.randn(1, 2, 6, 8, generator=generator))
    view.weight_at(torch.arange(6)).sum().backward()
    view.weight_at(torch.arange(6)).sum().backward()


def test_an_entropy_penalty_can_be_trained_on(generator):
    """Descending on the entropy sharpens the pattern, ascending makes it uniform."""
    x = torch.randn(1, 1, 32, 16, generator=generator)
    for sign, reached in ((1.0, lambda e: e < 0.1), (-1.0, lambda e: e > 0.99)):
        W = (torch.randn(2, 16, 16, generator=generator) * 0.3).requires_grad_()
        optimizer = torch.optim.Adam([W], lr=0.05)
        for _ in range(60):
            view = AttentionView(x @ W[0], x @ W[1])
            optimizer.zero_grad()
            (sign * view.entropy().mean()).backward()
            optimizer.step()
        normalized = AttentionView(x @ W[0], x @ W[1]).entropy(normalized=True)
        assert reached(normalized.nanmean()), normalized.nanmean()
