"""Statistics without the pattern are those of the pattern, whatever the tokens, masks and heads."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import Transformer, TransformerConfig, probes
from interp.attention import AttentionView
from interp.probes.heads import NAMES

MANY = settings(deadline=None, max_examples=25, derandomize=True)


def model_of(kv: int, attention: str, size: float) -> Transformer:
    options = {"window": {"window": 4}}.get(attention, {})
    config = TransformerConfig(
        n_layers=1,
        n_heads=4,
        n_kv_heads=kv,
        d_model=16,
        d_vocab=9,
        n_ctx=24,
        attention=attention,
        attention_options=options,
        init_scale=size,
        bos_token=0,
    )
    return Transformer(config).eval().requires_grad_(False)


def keeps_the_pattern(x, hook):
    """Has it materialised."""


@MANY
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 24),
    vocabulary=st.sampled_from([1, 2, 4, 9]),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
    kv=st.sampled_from([1, 2, 4]),
    attention=st.sampled_from(["causal", "full", "window"]),
    size=st.sampled_from([0.1, 2.0, 6.0]),
)
def test_head_statistics_equal_those_of_the_pattern(
    seed, n, vocabulary, holes, kv, attention, size
):
    """Pads may stand anywhere; there may be one token only, or no row at all."""
    g = torch.Generator().manual_seed(seed)
    model = model_of(kv, attention, size)
    tokens = torch.randint(0, vocabulary, (3, n), generator=g)
    mask = torch.rand(3, n, generator=g) >= holes
    hooks = [("blocks.0.attn.hook_pattern", keeps_the_pattern)]
    also = ["renyi", "max_weight", "top_keys"]
    found = probes.head_statistics(model, tokens, mask=mask, also=also)
    dense = probes.head_statistics(model, tokens, mask=mask, also=also, hooks=hooks)
    for name in NAMES:
        got, want = getattr(found, name), getattr(dense, name)
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4, equal_nan=True, msg=name)
    split = probes.head_statistics(model, tokens, mask=mask, batch_size=1, memory=3000)
    for name in NAMES[:11]:
        got, want = getattr(split, name), getattr(found, name)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4, equal_nan=True, msg=name)


@MANY
@given(
    keys=st.integers(2, 64),
    sharpness=st.sampled_from([0.5, 1.0, 3.0, 8.0]),
    seed=st.integers(0, 10**6),
)
def test_entropy_is_above_its_bound_for_logits_of_a_given_norm(keys, sharpness, seed):
    """Zhai et al. 2023, "Stabilizing Transformer Training by Preventing Attention Entropy
    Collapse": log(1 + (T−1)β) + σ√(T(T−1)) β / (1 + (T−1)β), β = exp(−σ√(T/(T−1)))."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 1, keys, 1, generator=g)
    logits = logits / logits.norm() * sharpness
    entropy = AttentionView(torch.ones(1, 1, 1, 1), logits, causal=False, scale=1.0).entropy()
    assert float(entropy) >= _bound(keys, sharpness) - 1e-5


def _bound(n: int, sharpness: float) -> float:
    beta = math.exp(-sharpness * math.sqrt(n / (n - 1)))
    rest = (n - 1) * beta
    return math.log(1 + rest) + sharpness * math.sqrt(n * (n - 1)) * beta / (1 + rest)


@pytest.mark.parametrize("keys", [4, 16, 64])
@pytest.mark.parametrize("sharpness", [1.0, 3.0, 8.0])
def test_the_bound_is_reached_by_one_key_against_equal_others(keys, sharpness):
    logits = torch.full((1, 1, keys, 1), -1.0 / (keys - 1))
    logits[..., 0, 0] = 1.0
    logits = logits / logits.norm() * sharpness
    entropy = AttentionView(torch.ones(1, 1, 1, 1), logits, causal=False, scale=1.0).entropy()
    assert float(entropy) == pytest.approx(_bound(keys, sharpness), abs=1e-5)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_random_logits_lose_half_their_variance(spread, generator):
    """E[H] ≈ log n − σ²/2: what an untrained head has."""
    n = 2048
    q, k = torch.full((1, 1, 1, 1), spread), torch.randn(1, 1, n, 1, generator=generator)
    entropy = AttentionView(q, k, causal=False, scale=1.0).entropy()
    # The standard error of σ²/2 from n draws, and of the mean exponential, is about σ²/√n.
    assert float(entropy) == pytest.approx(math.log(n) - spread**2 / 2, abs=5 * spread**2 / n**0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_accelerator_gives_the_same_numbers(dtype, generator):
    q, k = (torch.randn(2, 4, 70, 32, generator=generator).to(dtype) for _ in range(2))
    here, there = AttentionView(q, k), AttentionView(q.cuda(), k.cuda(), route="fused")
    for name in ("log_sum_exp", "entropy", "max_weight", "mean_distance"):
        got = getattr(there, name)().cpu()
        torch.testing.assert_close(got, getattr(here, name)(), atol=1e-4, rtol=1e-4)
    model = model_of(2, "causal", 2.0)
    tokens = torch.randint(0, 9, (3, 24), generator=generator)
    want = probes.head_statistics(model, tokens)
    found = probes.head_statistics(model.cuda(), tokens.cuda())
    for name in NAMES[:11]:
        got = getattr(found, name).cpu()
        torch.testing.assert_close(got, getattr(want, name), atol=1e-4, rtol=1e-4, equal_nan=True)
