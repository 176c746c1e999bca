import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import interp
from tests.tiny import KINDS, some_tokens, tiny


def by_hand(model, tokens):
    """The forward pass of an attention-plus-MLP model from its stacked weights alone."""
    n, scale = tokens.shape[1], model.config.scale
    x = model.W_E[tokens] + model.W_pos[:n]
    causal = torch.ones(n, n).tril().bool()
    for layer, block in enumerate(model.blocks):
        y = F.layer_norm(x, x.shape[-1:], block.ln1.weight, block.ln1.bias)
        q, k, v = (
            torch.einsum("btd,hde->bthe", y, w[layer]) + b[layer]
            for w, b in ((model.W_Q, model.b_Q), (model.W_K, model.b_K), (model.W_V, model.b_V))
        )
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) * scale
        pattern = scores.masked_fill(~causal, -torch.inf).softmax(-1)
        z = torch.einsum("bhqk,bkhe->bqhe", pattern, v)
        x = x + torch.einsum("bqhe,hed->bqd", z, model.W_O[layer]) + model.b_O[layer]
        y = F.layer_norm(x, x.shape[-1:], block.ln2.weight, block.ln2.bias)
        x = x + F.gelu(y @ block.mlp.W_in + block.mlp.b_in) @ block.mlp.W_out + block.mlp.b_out
    x = F.layer_norm(x, x.shape[-1:], model.ln_final.weight, model.ln_final.bias)
    return x @ model.W_U + model.b_U


def test_logits_are_those_of_the_formula():
    model, tokens = tiny("mlp"), some_tokens()
    assert_close(model(tokens), by_hand(model, tokens), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pads", [1, 3, 8])
def test_padding_on_either_side_changes_nothing(kind, pads):
    model, tokens = tiny(kind), some_tokens()
    junk, real = torch.full((3, pads), 7), torch.ones(3, 12, dtype=torch.bool)
    no = torch.zeros(3, pads, dtype=torch.bool)
    logits, loss = model(tokens), model.loss(tokens)
    left, left_mask = torch.cat([junk, tokens], 1), torch.cat([no, real], 1)
    right, right_mask = torch.cat([tokens, junk], 1), torch.cat([real, no], 1)
    assert_close(model(left, mask=left_mask)[:, pads:], logits, atol=1e-5, rtol=1e-4)
    assert_close(model(right, mask=right_mask)[:, :12], logits, atol=1e-5, rtol=1e-4)
    assert_close(model.loss(left, mask=left_mask), loss, atol=1e-5, rtol=1e-5)
    assert_close(model.loss(right, mask=right_mask), loss, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [[12], [5, 7], [1] * 12, [10, 1, 1]])
def test_chunks_through_a_cache_give_the_logits_and_hooks_of_one_call(kind, chunks):
    model, tokens = tiny(kind), some_tokens()
    whole, kept, kv, parts = [], [], model.new_kv_cache(), []
    names = ["*.hook_q", "*.hook_k", "*.hook_z", "*.hook_resid_post"]
    logits = model(tokens, hooks=[(n, lambda x, hook: whole.append(x.clone())) for n in names])
    for chunk in tokens.split(chunks, 1):
        seen = []
        watch = [(n, lambda x, hook, seen=seen: seen.append(x.clone())) for n in names]
        parts.append(model(chunk, kv_cache=kv, hooks=watch))
        kept.append(seen)
    assert_close(torch.cat(parts, 1), logits, atol=1e-5, rtol=1e-4)
    for n, one in enumerate(whole):
        assert_close(torch.cat([seen[n] for seen in kept], 1), one, atol=1e-5, rtol=1e-4)


def test_padded_chunks_through_a_cache_give_the_logits_of_one_call():
    model, tokens = tiny("llama"), some_tokens()
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, :4], mask[1, 5:7], mask[2, 9:] = False, False, False
    logits, kv = model(tokens, mask=mask), model.new_kv_cache()
    chunks = zip(tokens.split([3, 4, 5], 1), mask.split([3, 4, 5], 1), strict=True)
    parts = torch.cat([model(t, mask=m, kv_cache=kv) for t, m in chunks], 1)
    assert_close(parts[mask], logits[mask], atol=1e-5, rtol=1e-4)


def test_a_forked_cache_goes_its_own_way():
    model, tokens = tiny(), some_tokens()
    kv = model.new_kv_cache()
    model(tokens[:, :6], kv_cache=kv)
    fork = kv.fork()
    model(tokens[:, :5], kv_cache=fork)
    assert (kv.length, fork.length) == (6, 11)
    assert_close(model(tokens[:, 6:], kv_cache=kv), model(tokens)[:, 6:], atol=1e-5, rtol=1e-4)


def test_a_call_that_fails_leaves_the_cache_as_it_was():
    model, tokens, kv = tiny(), some_tokens(), tiny().new_kv_cache()
    model(tokens[:, :6], kv_cache=kv)

    def boom(x, hook):
        raise KeyError

    with pytest.raises(KeyError):
        model(tokens[:, :3], kv_cache=kv, hooks=[("blocks.1.attn.hook_z", boom)])
    assert_close(model(tokens[:, 6:], kv_cache=kv), model(tokens)[:, 6:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_and_starting_at_a_layer_is_the_whole_run(kind):
    model, tokens = tiny(kind), some_tokens()
    resid = model(tokens, stop_at_layer=1)
    assert torch.equal(model(resid, start_at_layer=1), model(tokens))
    assert torch.equal(model(tokens, stop_at_layer=-1), resid)
    seen = []
    watch = [("blocks.*.hook_resid_pre", lambda x, hook: seen.append(hook.layer()))]
    model(resid, start_at_layer=1, hooks=watch)
    assert seen == [1]


def test_loss_is_the_mean_over_predicted_real_tokens():
    model = tiny()
    tokens, mask = some_tokens(2, 6), torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0]])
    junk = tokens.masked_fill(mask == 0, 9)
    loss = model.loss(tokens, mask=mask)
    assert torch.equal(loss, model.loss(junk, mask=mask))
    apart = 5 * model.loss(tokens[:1]) + model.loss(tokens[1:, :2])
    assert_close(loss, apart / 6)
    each = model.loss(tokens, mask=mask, per_token=True)
    assert each.shape == (2, 5)
    assert each.isnan().tolist() == [[False] * 5, [False, True, True, True, True]]
    assert_close(each.nanmean(), loss)
    assert_close(model(tokens, mask=mask, return_type="both")[1], loss)
    with pytest.raises(ValueError, match="no token to predict"):
        model.loss(tokens, mask=torch.zeros(2, 6, dtype=torch.bool))


def test_generation_is_greedy_seeded_or_refused():
    model, tokens = tiny(), some_tokens(2, 4)
    longer = model.generate(tokens, 8)
    for n in range(4, 12):  # without a cache
        assert torch.equal(longer[:, n], model(longer[:, :n])[:, -1].argmax(-1))
    draws = [
        model.generate(tokens, 8, temperature=1.0, generator=torch.Generator().manual_seed(s))
        for s in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    top = model.generate(tokens, 8, temperature=5.0, top_k=1, generator=torch.Generator())
    assert torch.equal(top, longer)
    with pytest.raises(ValueError, match="generator"):
        model.generate(tokens, 8, temperature=1.0)
    with pytest.raises(ValueError, match="n_ctx=24"):
        model.generate(tokens, 21)


def test_views_write_to_the_stored_weights_and_stacks_do_not():
    model, tokens = tiny("llama"), some_tokens()
    base = model(tokens)
    model.W_O[0, 2] = 0
    assert torch.equal(model(tokens), base)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        fresh = tiny("llama")
        view = getattr(fresh.blocks[1].attn, name)
        stack = getattr(fresh, name)
        assert_close(stack[1].unique(dim=0), view.unique(dim=0))
        assert stack.shape[:2] == (2, 4)
        view[0] = 0
        assert not torch.allclose(fresh(tokens), base)
    fresh = tiny("mlp")
    base = fresh(tokens)
    fresh.blocks[0].attn.b_Q[1] = 3.0
    fresh.blocks[1].mlp.W_in.mul_(2)
    assert not torch.allclose(fresh(tokens), base)


def test_a_head_whose_output_weights_are_zero_can_be_cut_for_nothing():
    model, tokens = tiny(), some_tokens()
    model.blocks[0].attn.W_O[2] = 0

    def cut(z, hook):
        z[:, :, 2] = 0

    assert torch.equal(model(tokens, hooks=[("blocks.0.attn.hook_z", cut)]), model(tokens))
    assert not torch.equal(model(tokens, hooks=[("blocks.1.attn.hook_z", cut)]), model(tokens))


def test_initial_weights_come_from_their_own_seed():
    state = torch.get_rng_state()
    config = interp.TransformerConfig(n_layers=1, n_heads=2, d_model=8, d_vocab=5, n_ctx=4)
    first, second = interp.Transformer(config), interp.Transformer(config)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.W_Q, second.W_Q)
    other = interp.TransformerConfig(**{**config.to_dict(), "init_seed": 1})
    assert not torch.equal(first.W_Q, interp.Transformer(other).W_Q)


def test_dropout_is_off_in_eval():
    model, tokens = tiny(dropout=0.5), some_tokens()
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    with torch.random.fork_rng():
        assert not torch.equal(model(tokens), model(tokens))


def test_no_buffer_grows_with_the_square_of_the_context():
    for kind in KINDS:
        model = tiny(kind, n_ctx=4096)
        assert all(buffer.numel() <= 4096 * 64 for buffer in model.buffers())


def test_bad_input_is_refused_with_what_was_wanted():
    model, tokens = tiny(), some_tokens()
    cases = [
        (lambda: model(tokens[0]), ValueError, r"tokens\[None\]"),
        (lambda: model(tokens.float()), TypeError, "integer tensor"),
        (lambda: model(tokens + 15), ValueError, r"\[0, 20\)"),
        (lambda: model(some_tokens(1, 25)), ValueError, "n_ctx=24"),
        (lambda: model(tokens, mask=torch.ones(3, 12)), TypeError, "mask must be bool"),
        (lambda: model(tokens, mask=torch.ones(3, 11).bool()), ValueError, "like the tokens"),
        (lambda: model(tokens, stop_at_layer=3), ValueError, "layers 0 … 1"),
        (lambda: model(tokens, start_at_layer=1), ValueError, "residual stream"),
        (lambda: model(tokens, return_type="probs"), ValueError, "return_type"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()
    kv = model.new_kv_cache()
    model(tokens, kv_cache=kv)
    with pytest.raises(ValueError, match="holds 3 sequences"):
        model(tokens[:1], kv_cache=kv)


@pytest.mark.parametrize("new", ["a", True, 1.5, -1])
def test_how_much_to_generate_is_a_count(new):
    with pytest.raises(ValueError, match="an integer max_new_tokens ≥ 0"):
        tiny().generate(some_tokens(), new)


def test_a_cache_is_asked_for_by_its_call_not_by_its_name():
    with pytest.raises(TypeError, match=r"model.new_kv_cache\(\), got str"):
        tiny().generate(some_tokens(), 3, kv_cache="rolling")
