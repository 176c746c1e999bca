"""Contiguous, paged and rolling caches: generation equals full recomputation."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import interp
from interp.attention import CACHES, BlockPool, PagedCache
from tests.tiny import some_tokens, tiny

BOUNDED = {
    "window": {"window": 4},
    "streaming": {"window": 4, "sinks": 2},
    "linear": {},
    "performer": {"features": 16},
}


def model_of(kind, base="llama"):
    return tiny(base, attention=kind, attention_options=BOUNDED.get(kind, {}))


def recomputed(model, tokens, n):
    for _ in range(n):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    return tokens


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", ["causal", *BOUNDED])
def test_generation_equals_full_recomputation(kind, cache):
    model, prompt = model_of(kind), some_tokens(length=7)
    found = model.generate(prompt, 15, kv_cache=model.new_kv_cache(cache))
    assert torch.equal(found, recomputed(model, prompt, 15))


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", ["causal", *BOUNDED])
def test_chunks_give_the_logits_of_the_whole(kind, cache):
    model, tokens = model_of(kind), some_tokens(length=24)
    kv = model.new_kv_cache(cache)
    logits = torch.cat([model(part, kv_cache=kv) for part in tokens.split([9, 1, 1, 6, 7], 1)], 1)
    torch.testing.assert_close(logits, model(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cache", CACHES)
def test_a_fork_goes_its_own_way(cache):
    model, tokens = model_of("window"), some_tokens(length=20)
    kv = model.new_kv_cache(cache)
    model(tokens[:, :9], kv_cache=kv)
    fork = kv.fork()
    other = model(tokens[:, 9:].flip(0), kv_cache=fork)
    torch.testing.assert_close(
        model(tokens[:, 9:], kv_cache=kv), model(tokens)[:, 9:], rtol=1e-4, atol=1e-5
    )
    whole = model(torch.cat([tokens[:, :9], tokens[:, 9:].flip(0)], 1))
    torch.testing.assert_close(other, whole[:, 9:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cache", CACHES)
def test_a_call_that_fails_leaves_the_cache_as_it_was(cache):
    model, tokens = model_of("streaming"), some_tokens(length=20)
    kv = model.new_kv_cache(cache)
    model(tokens[:, :9], kv_cache=kv)

    def fail(x, hook):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        model(tokens[:, 3:9], kv_cache=kv, hooks=[("blocks.1.hook_attn_out", fail)])
    found = model(tokens[:, 9:], kv_cache=kv)
    torch.testing.assert_close(found, model(tokens)[:, 9:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cache", ["contiguous", "paged"])
def test_pads_stay_out(cache):
    model, tokens = model_of("streaming"), some_tokens(length=16)
    padded = torch.cat([torch.zeros(3, 4, dtype=torch.long), tokens], 1)
    mask = torch.arange(20).expand(3, -1) >= 4
    kv = model.new_kv_cache(cache)
    logits = [
        model(t, mask=m, kv_cache=kv)
        for t, m in zip(padded.split(7, 1), mask.split(7, 1), strict=True)
    ]
    torch.testing.assert_close(torch.cat(logits, 1)[:, 4:], model(tokens), rtol=1e-4, atol=1e-5)


def test_an_unknown_cache_and_a_padded_rolling_one_are_refused():
    model, tokens = model_of("window"), some_tokens(length=6)
    with pytest.raises(ValueError, match="one of contiguous, paged, rolling; got 'round'"):
        model.new_kv_cache("round")
    with pytest.raises(ValueError, match="takes no padding"):
        model(tokens, mask=tokens != tokens[0, 0], kv_cache=model.new_kv_cache("rolling"))


@pytest.mark.parametrize(("kind", "most"), [("window", 3), ("streaming", 5)])
def test_a_rolling_cache_holds_what_may_be_seen(kind, most):
    model = model_of(kind)
    kv = model.new_kv_cache("rolling")
    for part in some_tokens(length=24).split([10, 1, 13], 1):
        model(part, kv_cache=kv)
        assert all(kept.k.shape[2] <= most for kept in kv._kept)


def test_attention_by_features_keeps_one_matrix_a_head():
    model = model_of("linear")
    kv = model.new_kv_cache("rolling")
    model(some_tokens(length=20), kv_cache=kv)
    assert all(kept.k is None and kept.state.shape == (3, 2, 8, 9) for kept in kv._kept)
    with pytest.raises(ValueError, match="has no pattern"):
        hook = ("blocks.0.attn.hook_pattern", lambda p, hook: None)
        model(some_tokens(length=2), kv_cache=kv, hooks=[hook])


# --- blocks -----------------------------------------------------------------------------------


def paged(model, **pool):
    return PagedCache(2, pool=BlockPool(2, **pool))


@pytest.mark.parametrize("block", [1, 3, 16])
def test_where_blocks_lie_changes_nothing(block, generator):
    model, tokens = model_of("causal"), some_tokens(length=24)
    kv = paged(model, block=block)
    kv.pool._grow()
    kv.pool.free = [kv.pool.free[i] for i in torch.randperm(8, generator=generator)]
    logits = [model(part, kv_cache=kv) for part in tokens.split([11, 1, 12], 1)]
    torch.testing.assert_close(torch.cat(logits, 1), model(tokens), rtol=1e-4, atol=1e-5)
    used = sum(n > 0 for n in kv.pool.uses)
    assert used * block - 3 * 24 < 3 * block  # under one block a sequence is wasted


def test_a_shared_prefix_is_held_once_and_copied_when_written_into():
    model, tokens = model_of("causal"), some_tokens(batch=1, length=24)
    kv = paged(model, block=4)
    model(tokens[:, :10], kv_cache=kv)  # two full blocks and a half
    many = kv.fork(copies=3)
    assert sum(n > 0 for n in kv.pool.uses) == 3
    ends = some_tokens(batch=3, length=5, seed=4)
    logits = model(ends, kv_cache=many)
    assert sum(n == 4 for n in kv.pool.uses) == 2  # the full blocks are still shared
    whole = model(torch.cat([tokens[:, :10].expand(3, -1), ends], 1))
    torch.testing.assert_close(logits, whole[:, 10:], rtol=1e-4, atol=1e-5)
    found = model(tokens[:, 10:], kv_cache=kv)
    torch.testing.assert_close(found, model(tokens)[:, 10:], rtol=1e-4, atol=1e-5)


def test_blocks_are_conserved_under_any_order_of_frees(generator):
    model, tokens = model_of("causal"), some_tokens(batch=1, length=24)
    first = paged(model, block=2)
    model(tokens[:, :5], kv_cache=first)
    caches = [first]
    for step in range(12):
        which = int(torch.randint(len(caches), (), generator=generator))
        fork = caches[which].fork()
        model(tokens[:, step : step + 3], kv_cache=fork)
        caches.append(fork)
        if step % 3 == 2:
            caches.pop(int(torch.randint(len(caches), (), generator=generator))).release()
        pool = first.pool
        used = {n for cache in caches for table in cache.tables for n in table}
        assert used.isdisjoint(pool.free)
        assert len(used) + len(set(pool.free)) == len(pool.uses) == len(used) + len(pool.free)
    for index in torch.randperm(len(caches), generator=generator).tolist():
        caches[index].release()
    assert sorted(first.pool.free) == list(range(len(first.pool.uses)))


def test_a_full_pool_says_so_and_room_helps():
    model, tokens = model_of("causal"), some_tokens(batch=1, length=12)
    kv = paged(model, block=4, capacity=2)
    model(tokens[:, :8], kv_cache=kv)
    other = PagedCache(2, pool=kv.pool)
    with pytest.raises(MemoryError, match="all 2 blocks of 4 tokens are in use"):
        model(tokens[:, :4], kv_cache=other)
    kv.release()
    torch.testing.assert_close(model(tokens[:, :8], kv_cache=other), model(tokens[:, :8]))


def stories(folder):
    """The fixture's Llama, weight by weight."""
    config = interp.TransformerConfig(
        n_layers=5,
        n_heads=8,
        n_kv_heads=4,
        d_model=64,
        d_mlp=172,
        d_vocab=512,
        n_ctx=512,
        positional="rotary",
        normalization="rms_norm",
        activation="silu",
        gated_mlp=True,
        bias=False,
        tied_embeddings=True,
    )
    given = load_file(folder / "model.safetensors")
    names = {
        "ln1.weight": "input_layernorm",
        "attn.o.weight": "self_attn.o_proj",
        "ln2.weight": "post_attention_layernorm",
        "mlp.gate.weight": "mlp.gate_proj",
        "mlp.up.weight": "mlp.up_proj",
        "mlp.down.weight": "mlp.down_proj",
    }
    found = {"embed.weight": given["model.embed_tokens.weight"]}
    found |= {
        "ln_final.weight": given["model.norm.weight"],
        "unembed.weight": found["embed.weight"],
    }
    for layer in range(5):
        old, new = f"model.layers.{layer}", f"blocks.{layer}"
        found |= {
            f"{new}.{ours}": given[f"{old}.{theirs}.weight"] for ours, theirs in names.items()
        }
        qkv = [given[f"{old}.self_attn.{x}_proj.weight"] for x in "qkv"]
        found[f"{new}.attn.qkv.weight"] = torch.cat(qkv)
    model = interp.Transformer(config).eval()
    model.load_state_dict(found)
    return model


def test_stories_are_told_the_same_with_every_cache(shared):
    folder = shared / "fixtures" / "stories260K"
    expected = torch.from_numpy(np.load(folder / "ref.npz")["tokens"])
    model = stories(folder / "hf")
    for kind in CACHES:
        found = model.generate(expected[:, :1], 200, kv_cache=model.new_kv_cache(kind))
        assert torch.equal(found, expected)


def test_a_rolling_cache_of_causal_layers_keeps_everything():
    model, tokens = tiny(), some_tokens()
    kv = model.new_kv_cache("rolling")
    logits = [model(chunk, kv_cache=kv) for chunk in tokens.split(5, 1)]
    torch.testing.assert_close(torch.cat(logits, 1), model(tokens), rtol=1e-4, atol=1e-5)
    assert all(kept.k.shape[2] == tokens.shape[1] for kept in kv._kept)
