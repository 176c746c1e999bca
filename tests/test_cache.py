import pytest
import torch
from torch.testing import assert_close

from tests.tiny import KINDS, some_tokens, tiny

POST = "blocks.0.hook_resid_post"
PATTERN = "blocks.0.attn.hook_pattern"


def zero(x, hook):
    x.zero_()


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_holds_what_hooks_see(kind):
    model, tokens, seen = tiny(kind), some_tokens(), {}
    _, cache = model.run_with_cache(tokens)
    for name in cache:
        model(tokens, hooks=[(name, lambda x, hook: seen.update({hook.name: x.clone()}))])
        assert_close(cache[name], seen[name], atol=1e-5, rtol=1e-4)
    split = ("hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in")
    assert set(model.hook_names()) - set(cache) == {
        name for name in model.hook_names() if name.endswith(split)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_residual_stream_adds_up(kind):
    model, tokens = tiny(kind), some_tokens()
    _, cache = model.run_with_cache(tokens)
    for heads in (False, True):
        parts, labels = cache.decompose_resid(heads=heads)
        assert len(parts) == len(labels)
        assert_close(parts.sum(0), cache["resid_post", -1], atol=1e-5, rtol=1e-4)
    if model.config.d_mlp is not None:
        mid = cache["resid_pre", 0] + cache["attn_out", 0]
        assert_close(mid, cache["resid_mid", 0], atol=1e-5, rtol=1e-4)
    stream, labels = cache.accumulated_resid()
    assert labels[-1] == "blocks.1.hook_resid_post"
    assert_close(stream[1], cache["resid_post", 0])


def test_parts_scaled_by_the_final_norm_give_the_logits():
    model, tokens = tiny("mlp"), some_tokens()
    logits, cache = model.run_with_cache(tokens)
    parts, _ = cache.decompose_resid(heads=True, apply_ln=True)
    normalised = parts.sum(0) * model.ln_final.weight + model.ln_final.bias
    assert_close(normalised @ model.W_U + model.b_U, logits, atol=1e-4, rtol=1e-4)
    before, _ = cache.decompose_resid(1, apply_ln=True)
    assert_close(before.sum(0), cache["normalized", 1, "ln1"], atol=1e-5, rtol=1e-4)


def test_later_edits_do_not_reach_a_cache_and_it_shows_what_flowed_on():
    model, tokens = tiny(), some_tokens()
    _, clean = model.run_with_cache(tokens)
    snapshot = {name: x.clone() for name, x in clean.items()}
    with model.hooks([(POST, zero)]):
        _, dirty = model.run_with_cache(tokens)
    assert (dirty[POST] == 0).all()
    assert (dirty["resid_pre", 1] == 0).all()
    clean[POST].zero_()
    model(tokens)
    _, again = model.run_with_cache(tokens)
    assert torch.equal(again[POST], snapshot[POST])
    for name in again:
        others = {n: x.clone() for n, x in again.items() if n != name}
        again[name].fill_(7)
        assert all(torch.equal(again[n], x) for n, x in others.items()), name
        assert (again[name] == 7).all()


def test_an_edit_downstream_does_not_reach_an_entry_upstream():
    model, tokens = tiny(), some_tokens()
    _, clean = model.run_with_cache(tokens)
    _, edited = model.run_with_cache(tokens, hooks=[("blocks.1.hook_resid_pre", zero)])
    assert torch.equal(edited[POST], clean[POST])
    assert (edited["resid_pre", 1] == 0).all()


def test_lazy_entries_do_not_follow_the_weights():
    model, tokens = tiny(), some_tokens()
    _, first = model.run_with_cache(tokens)
    wanted = {name: x.clone() for name, x in model.run_with_cache(tokens)[1].items()}
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    assert all(torch.equal(first[name], x) for name, x in wanted.items())


def test_a_pattern_that_a_hook_edited_is_kept_as_it_flowed():
    model, tokens = tiny(), some_tokens()
    logits, cache = model.run_with_cache(
        tokens, hooks=[(PATTERN, lambda p, h: torch.zeros_like(p))]
    )
    assert (cache["pattern", 0] == 0).all()
    assert (cache["z", 0] == 0).all()
    assert (logits - model(tokens)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_reading_the_pattern_takes_no_other_road(kind):
    model, tokens = tiny(kind), some_tokens()
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, :4] = False
    for real in (None, mask):
        logits, cache = model.run_with_cache(tokens, mask=real)
        assert_close(logits, model(tokens, mask=real), atol=1e-5, rtol=1e-4)
        pattern = cache["pattern", 0]
        assert pattern.triu(1).abs().max() == 0
        rows = pattern.sum(-1) if real is None else pattern.sum(-1).transpose(1, 2)[real]
        assert_close(rows, torch.ones_like(rows))
        if real is not None:
            assert (pattern[0, :, :, :4] == 0).all()
            assert (pattern[0, :, :4] == 0).all()


def test_a_pattern_from_chunks_is_that_of_the_whole():
    model, tokens, kv = tiny(), some_tokens(), tiny().new_kv_cache()
    _, whole = model.run_with_cache(tokens)
    model(tokens[:, :7], kv_cache=kv)
    _, rest = model.run_with_cache(tokens[:, 7:], kv_cache=kv)
    assert_close(rest["pattern", 1], whole["pattern", 1][:, :, 7:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (POST, 1),
        ("*.hook_z", 2),
        (["*.hook_z", "hook_embed"], 3),
        (lambda name: name.endswith("hook_pattern"), 2),
        ("blocks.0.hook_q_input", 1),
    ],
)
def test_a_filter_keeps_what_it_names(names, count):
    _, cache = tiny().run_with_cache(some_tokens(), names)
    assert len(cache) == count


def test_a_filter_that_names_nothing_is_told_the_nearest():
    with pytest.raises(LookupError, match="hook_z"):
        tiny().run_with_cache(some_tokens(), "blocks.0.attn.z")
    _, cache = tiny().run_with_cache(some_tokens(), "*.hook_z", stop_at_layer=1)
    assert list(cache) == ["blocks.0.attn.hook_z"]
    with pytest.raises(KeyError, match="hook_z"):
        _ = cache["q", 0]


def test_short_forms_are_transformer_lens_s():
    _, cache = tiny().run_with_cache(some_tokens())
    pairs = [
        (("pattern", 0), PATTERN),
        (("resid_post", -1), "blocks.1.hook_resid_post"),
        (("scale", 1, "ln2"), "blocks.1.ln2.hook_scale"),
        (("post", 0), "blocks.0.mlp.hook_post"),
        ("embed", "hook_embed"),
        ("scale", "ln_final.hook_scale"),
    ]
    for short, full in pairs:
        assert torch.equal(cache[short], cache[full])
    assert cache.stack("z").shape == (2, 3, 12, 4, 8)
    assert ("pattern", 0) in cache
    assert "nothing" not in cache


def test_gradients_are_kept_on_request():
    model, tokens = tiny(), some_tokens()
    logits, cache = model.run_with_cache(tokens, keep_gradients=True)
    names = ["blocks.0.attn.hook_z", POST, "hook_embed"]
    for gradient in torch.autograd.grad(logits.square().mean(), [cache[n] for n in names]):
        assert gradient.abs().sum() > 0
    _, cache = model.run_with_cache(tokens)
    assert not any(x.requires_grad for x in cache.values())
