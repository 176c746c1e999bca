"""Streams that count positions within their cache, as Xiao et al. do: a function of positions."""

from dataclasses import replace

import pytest
import torch

import interp
from interp.attention import CACHES, AttentionCall, Streaming, Visible, fused, materialised, routes
from interp.attention.positions import alibi_slopes, rotate, rotations
from interp.circuits import score_attribution
from interp.probes import head_statistics
from tests.tiny import scramble, some_tokens, tiny

WINDOW, SINKS = 4, 2
BASES = ["llama", "gptj", "alibi_mqa"]


@pytest.fixture(autouse=True)
def _skip_however_short(monkeypatch):
    monkeypatch.setattr(routes, "SHORTEST", 0)
    monkeypatch.setattr(routes, "SHORTEST_PADDED", 0)


def model_of(base="llama", positions="cache", **changes):
    options = {"window": WINDOW, "sinks": SINKS, "positions": positions}
    return tiny(base, attention="streaming", attention_options=options, **changes)


def by_hand(model, cache, layer):
    """The pattern of a loop that keeps sinks and window, unrotated, and numbers what it keeps."""
    config = model.config
    q, k = (cache[f"blocks.{layer}.attn.hook_{x}"].double() for x in "qk")
    k = k.repeat_interleave(config.n_heads // config.kv_heads, 2)
    n = q.shape[1]
    pattern = torch.zeros(q.shape[0], config.n_heads, n, n, dtype=torch.float64)
    for row in range(n):
        kept = [j for j in range(row + 1) if j < SINKS or j > row - WINDOW]
        own, numbered = q[:, [row]], k[:, kept]
        places = torch.arange(len(kept))
        if config.positional == "rotary":
            table = rotations(n, config.rotary_dim or config.head_width).double()[:, None]
            how = {"interleaved": config.rotary_interleaved}
            own = rotate(own, table[:, :, [len(kept) - 1]], **how)
            numbered = rotate(numbered, table[:, :, : len(kept)], **how)
        scores = torch.einsum("bqhe,bkhe->bhk", own, numbered) * config.scale
        if config.positional == "alibi":
            slopes = torch.tensor(alibi_slopes(config.n_heads))[:, None]
            scores = scores - slopes * (len(kept) - 1 - places)
        pattern[:, :, row, kept] = scores.softmax(-1)
    return pattern


@pytest.mark.parametrize("base", BASES)
def test_the_pattern_is_that_of_a_cache_that_numbers_what_it_keeps(base):
    model, tokens = model_of(base), some_tokens(length=24)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        expected = by_hand(model, cache, layer)
        torch.testing.assert_close(cache["pattern", layer].double(), expected, rtol=1e-4, atol=1e-6)
    _, text = model_of(base, "text").run_with_cache(tokens)
    assert not torch.allclose(text["pattern", 0], cache["pattern", 0], atol=1e-3)


@pytest.mark.parametrize("base", BASES)
def test_until_the_cache_is_full_positions_are_those_of_the_text(base):
    tokens = some_tokens(length=WINDOW + SINKS)
    logits = [model_of(base, positions)(tokens) for positions in ("cache", "text")]
    torch.testing.assert_close(*logits)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("base", BASES)
def test_generation_equals_full_recomputation(base, cache):
    model, prompt = model_of(base), some_tokens(length=5)
    found = model.generate(prompt, 17, kv_cache=model.new_kv_cache(cache))
    whole = model(found[:, :-1])[:, 4:]
    assert torch.equal(found[:, 5:], whole.argmax(-1))
    kv = model.new_kv_cache(cache)
    chunks = [model(part, kv_cache=kv) for part in found[:, :-1].split([9, 1, 1, 10], 1)]
    torch.testing.assert_close(torch.cat(chunks, 1)[:, 4:], whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("base", BASES)
def test_a_longer_text_takes_a_longer_n_ctx_and_no_more_memory(base):
    short, prompt = model_of(base), some_tokens(length=5)
    with pytest.raises(ValueError, match="build the model anew with n_ctx as large as the whole"):
        short.generate(prompt, 100, kv_cache=short.new_kv_cache("rolling"))
    model = interp.Transformer(replace(short.config, n_ctx=120)).eval()
    model.load_state_dict(short.state_dict())
    kv = model.new_kv_cache("rolling")
    found = model.generate(prompt, 100, kv_cache=kv)
    assert all(kept.k.shape[2] < WINDOW + SINKS for kept in kv._kept)
    assert torch.equal(found[:, 5:], model(found[:, :-1])[:, 4:].argmax(-1))


@pytest.mark.parametrize("base", BASES)
def test_routes_gradients_and_pads_agree(base):
    model, tokens = model_of(base).double(), some_tokens(length=24)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[0, :5], real[1, 20:] = False, False
    for mask in (None, real):
        found = []
        for kernel in ({}, {"kernel": materialised}):
            model.zero_grad()
            model.loss(tokens, mask=mask, **kernel).backward()
            found.append(torch.cat([w.grad.flatten() for w in model.parameters()]))
        torch.testing.assert_close(*found, rtol=1e-8, atol=1e-10)
    alone = model(tokens[:1, 5:])
    torch.testing.assert_close(model(tokens, mask=real)[:1, 5:], alone, rtol=1e-8, atol=1e-10)


def test_statistics_and_score_attribution_are_of_the_reindexed_scores():
    model, tokens = model_of(), some_tokens(length=24)
    _, cache = model.run_with_cache(tokens)
    sink = torch.stack([cache["pattern", layer][:, :, 1:, 0].mean((0, 2)) for layer in range(2)])
    torch.testing.assert_close(head_statistics(model, tokens).sink, sink, rtol=1e-4, atol=1e-5)
    _, cache = model.run_with_cache(tokens[:1])
    for key in (0, 1, 19):
        score = cache["attn_scores", 1][0, 3, 20, key]
        split = score_attribution(model, tokens[:1], 1, 3, 20, key)
        assert split.score == pytest.approx(float(score), abs=1e-4)


def test_a_hook_on_rotated_queries_reaches_the_sinks_too():
    model, tokens = model_of(), some_tokens(length=24)
    hooks = [("blocks.0.attn.hook_rot_q", lambda q, hook: 0 * q)]
    _, cache = model.run_with_cache(tokens, hooks=hooks)
    seen = model.blocks[0].attn.rule(torch.arange(24)[:, None], torch.arange(24))
    torch.testing.assert_close(
        cache["pattern", 0], (seen / seen.sum(-1, keepdim=True)).expand(3, 4, -1, -1)
    )


def test_an_encoder_decoder_streams_alike():
    options = {"window": WINDOW, "sinks": SINKS, "positions": "cache"}
    sizes = {"n_heads": 4, "d_model": 32, "d_vocab": 20, "n_ctx": 24, "positional": "rotary"}
    read = interp.TransformerConfig(n_layers=1, attention="full", **sizes)
    write = interp.TransformerConfig(
        n_layers=2, attention="streaming", attention_options=options, **sizes
    )
    both = interp.Seq2SeqConfig(encoder=read, decoder=write)
    model = scramble(interp.Seq2SeqTransformer(both)).eval()
    reads, says = some_tokens(length=9, seed=3), some_tokens(length=20)
    kv = model.new_kv_cache("rolling")
    chunks = [model(reads, part, kv_cache=kv) for part in says.split([9, 1, 10], 1)]
    torch.testing.assert_close(torch.cat(chunks, 1), model(reads, says), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positional", ["learned", "none", "shortformer", "sinusoidal"])
def test_positions_that_cannot_be_reindexed_are_refused(positional):
    with pytest.raises(ValueError, match="needs positional='rotary' or 'alibi', got"):
        model_of("mlp", positional=positional)
    with pytest.raises(ValueError, match="'text' or 'cache', got 'kept'"):
        Streaming(4, positions="kept")


@pytest.mark.parametrize(("d_head", "d_value"), [(8, 3), (3, 8)])
def test_values_may_be_narrower_or_wider_than_keys_at_no_cost_in_memory(
    d_head, d_value, generator, monkeypatch
):
    n, given = 40, []
    real = torch.nn.functional.scaled_dot_product_attention

    def watched(q, k, v, **how):
        given.append((q.shape[-1], v.shape[-1]))
        return real(q, k, v, **how)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    q, k = torch.randn(2, 1, 2, n, d_head, generator=generator, dtype=torch.float64)
    v = torch.randn(1, 2, n, d_value, generator=generator, dtype=torch.float64)
    position = torch.arange(n)[None]
    for rule in (interp.attention.Causal(), interp.attention.Window(5)):
        call = AttentionCall(q, k, v, Visible(rule, position, position), 0.3)
        torch.testing.assert_close(fused(call), materialised(call))
    assert set(given) == {(8, 8)}  # with unequal widths PyTorch holds the n×n pattern
