"""Switches of numerics: smeared keys, sink logits, score precision, σReparam, pooled heads."""

import math

import pytest
import torch

import interp
from interp import spectral
from interp.attention import CACHES, materialised
from interp.attention.precision import scores_in
from interp.attention.smearing import smeared
from interp.grouping import group_queries
from tests.tiny import some_tokens, tiny

# --- smeared keys ---------------------------------------------------------------------------------


def test_a_smeared_key_is_mixed_with_the_one_before():
    k = torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1).repeat(1, 1, 2, 1)
    found = smeared(k, torch.tensor([0.75, 1.0]))[0, :, :, 0]
    assert torch.equal(found, torch.tensor([[1.0, 1.0], [7.75, 10.0], [77.5, 100.0]]))


def test_pads_are_nobodys_previous_token():
    k = torch.tensor([5.0, 1.0, 7.0, 10.0]).view(1, 4, 1, 1)
    real = torch.tensor([[False, True, False, True]])
    found = smeared(k, torch.tensor([0.5]), real=real).flatten()
    assert found[[1, 3]].tolist() == [1.0, 5.5]


def test_smearing_lets_one_layer_see_what_stood_before_a_key():
    """Previous tokens reach scores through smeared keys, and only there."""
    tokens = some_tokens(length=12)
    other = tokens.clone()
    other[:, 4] = (tokens[:, 4] + 1) % 20
    for smear in (False, True):
        model = tiny("attention_only", n_layers=1, smeared_keys=smear)
        scores = [
            model.run_with_cache(t)[1]["attn_scores", 0][..., 5].nan_to_num(0, 0, 0)
            for t in (tokens, other)
        ]
        assert torch.allclose(scores[0][:, :, 5:], scores[1][:, :, 5:]) is not smear


@pytest.mark.parametrize("base", ["llama", "alibi_mqa"])
@pytest.mark.parametrize("cache", CACHES)
def test_smeared_keys_go_through_every_cache(cache, base):
    model, tokens = tiny(base, smeared_keys=True), some_tokens(length=24)
    kv = model.new_kv_cache(cache)
    logits = torch.cat([model(part, kv_cache=kv) for part in tokens.split([7, 1, 16], 1)], 1)
    torch.testing.assert_close(logits, model(tokens), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        model(tokens, kernel=materialised), model(tokens), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("cache", [None, "contiguous", "paged"])
def test_smeared_keys_pass_over_pads(cache):
    model, tokens = tiny("llama", smeared_keys=True), some_tokens(length=18)
    padded, mask = torch.zeros(3, 24, dtype=torch.long), torch.ones(3, 24, dtype=torch.bool)
    mask[:, [0, 1, 8, 9, 10, 20]] = False
    padded[mask] = tokens.flatten()
    kv = None if cache is None else model.new_kv_cache(cache)
    step = 24 if cache is None else 10
    chunks = zip(padded.split(step, 1), mask.split(step, 1), strict=True)
    logits = torch.cat([model(t, mask=m, kv_cache=kv) for t, m in chunks], 1)
    found = logits[mask].view(3, 18, -1)
    torch.testing.assert_close(found, model(tokens), rtol=1e-4, atol=1e-5)


# --- sink logits ----------------------------------------------------------------------------------


def test_a_sink_takes_its_share_of_every_row():
    model, tokens = tiny(sink_logits=True), some_tokens()
    _, cache = model.run_with_cache(tokens)
    scores, pattern = cache["attn_scores", 1], cache["pattern", 1]
    sink = model.blocks[1].attn.sink.detach()[:, None, None]
    expected = scores.exp() / (sink.exp() + scores.exp().sum(-1, keepdim=True))
    torch.testing.assert_close(pattern, expected)
    fused, whole = model(tokens), model(tokens, kernel=materialised)
    torch.testing.assert_close(fused, whole)


def test_a_sink_far_below_all_scores_changes_nothing():
    model, plain = tiny(sink_logits=True), tiny()
    weights = {n: x for n, x in model.state_dict().items() if not n.endswith("sink")}
    plain.load_state_dict(weights)
    for block in model.blocks:
        block.attn.sink.data.fill_(-1e4)
    torch.testing.assert_close(model(some_tokens()), plain(some_tokens()))


def test_sinks_are_trained_and_pads_stay_out():
    model, tokens = tiny(sink_logits=True), some_tokens(length=20)
    mask = torch.arange(20).expand(3, -1) >= 4
    model.loss(tokens, mask=mask).backward()
    assert all((block.attn.sink.grad != 0).all() for block in model.blocks)
    torch.testing.assert_close(
        model(tokens, mask=mask)[:, 4:], model(tokens[:, 4:]), rtol=1e-4, atol=1e-5
    )


def test_statistics_beside_a_sink_are_of_what_it_leaves():
    model, tokens = tiny(sink_logits=True), some_tokens()
    p = model.run_with_cache(tokens)[1]["pattern", 0]
    p = p / p.sum(-1, keepdim=True)
    entropy = -(p * p.clamp(min=1e-30).log()).sum(-1)[..., 1:]
    expected = (entropy / torch.arange(2, 13).log()).mean((0, 2))
    found = interp.probes.head_statistics(model, tokens).normalized_entropy[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_linear_attention_takes_no_sink():
    with pytest.raises(ValueError, match="sink_logits"):
        tiny(attention="linear", sink_logits=True)


# --- precision of scores --------------------------------------------------------------------------


def test_narrow_scores_err_by_their_precision():
    model, tokens = tiny("llama"), some_tokens()
    exact = model(tokens)
    errors = {
        dtype: float((model(tokens, kernel=scores_in(dtype)) - exact).detach().abs().max())
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    }
    assert errors[torch.float32] < 1e-5 < errors[torch.float16] < errors[torch.bfloat16] < 0.2
    with pytest.raises(ValueError, match="plain scores"):
        tiny("alibi_mqa")(tokens, kernel=scores_in(torch.float32))


# --- σReparam -------------------------------------------------------------------------------------


def largest(weight):
    return float(torch.linalg.matrix_norm(weight, 2))


def test_reparametrised_matrices_have_the_spectral_norm_gamma():
    model = tiny().train()
    spectral.reparametrise(model, power_iterations=200)
    matrix = model.blocks[0].attn.qkv
    matrix.weight.detach()  # in training mode, reading it takes the iterations
    assert largest(matrix.weight.detach()) == pytest.approx(1, abs=1e-3)
    matrix.parametrizations.weight[1].gamma.data.fill_(3.0)
    assert largest(matrix.weight.detach()) == pytest.approx(3, abs=3e-3)


def test_gamma_is_trained_the_global_generator_left_alone_and_folding_changes_nothing():
    state, model, tokens = torch.get_rng_state(), tiny(), some_tokens()
    spectral.reparametrise(model)
    assert torch.equal(torch.get_rng_state(), state)
    model.train().loss(tokens).backward()
    assert model.blocks[1].mlp.up.parametrizations.weight[1].gamma.grad != 0
    before = model.eval()(tokens)
    spectral.fold(model)
    torch.testing.assert_close(model(tokens), before)
    assert set(model.state_dict()) == set(tiny().state_dict())


def test_putting_it_on_twice_or_off_what_is_bare_is_refused():
    model = tiny()
    with pytest.raises(ValueError, match="has no σReparam"):
        spectral.fold(model)
    spectral.reparametrise(model)
    with pytest.raises(ValueError, match="already"):
        spectral.reparametrise(model)


@pytest.mark.parametrize("n", [4, 16, 64])
@pytest.mark.parametrize("sigma", [1.0, 3.0, 8.0])
def test_the_entropy_bound_is_reached_and_never_undercut(n, sigma, generator):
    bound = spectral.entropy_bound(sigma, n)
    sharpest = torch.full((n,), -1 / math.sqrt(n * (n - 1)), dtype=torch.float64)
    sharpest[0] = math.sqrt((n - 1) / n)
    assert entropy(sigma * sharpest) == pytest.approx(bound, rel=1e-10)
    for row in torch.randn(300, n, generator=generator, dtype=torch.float64):
        assert entropy(sigma * row / row.norm()) >= bound
    assert spectral.entropy_bound(sigma, 1) == 0


def entropy(scores):
    p = scores.softmax(-1)
    return float(-(p * p.log()).sum())


# --- pooled heads ---------------------------------------------------------------------------------


def test_heads_that_were_equal_lose_nothing_when_pooled():
    model, tokens = tiny("mlp"), some_tokens()
    for block in model.blocks:
        for name in ("W_K", "W_V", "b_K", "b_V"):
            weight = getattr(block.attn, name)
            weight[1], weight[3] = weight[0], weight[2]
    pooled = group_queries(model, 2)
    assert pooled.config.kv_heads == 2
    torch.testing.assert_close(pooled(tokens), model(tokens))
    # Tiled in place of interleaved groups would share the wrong heads.
    assert not torch.allclose(group_queries(model, 1)(tokens), model(tokens), atol=1e-3)


def test_pooled_heads_are_means_and_the_model_is_left_alone():
    model = tiny("llama", n_kv_heads=4, smeared_keys=True)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    pooled = group_queries(model, 2)
    expected = model.blocks[1].attn.W_K.unflatten(0, (2, 2)).mean(1)
    torch.testing.assert_close(pooled.blocks[1].attn.W_K, expected)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    same = group_queries(model, 4)
    assert torch.equal(same(some_tokens()), model(some_tokens()))
    with pytest.raises(ValueError, match="must divide the model's 4, got 3"):
        group_queries(model, 3)
