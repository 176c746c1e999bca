import threading

import pytest
import torch
from torch.testing import assert_close

from interp.hooks import HookPoint
from tests.tiny import KINDS, some_tokens, tiny

Z = "blocks.0.attn.hook_z"
PATTERN = "blocks.1.attn.hook_pattern"


def double(x, hook):
    return 2 * x


def boom(x, hook):
    raise KeyError("from the hook")


@pytest.mark.parametrize("kind", KINDS)
def test_every_point_is_offered_and_watching_changes_nothing(kind):
    model, tokens, seen = tiny(kind), some_tokens(), []
    logits = model(tokens, hooks=[("*", lambda x, hook: seen.append(hook.name))])
    assert set(seen) == set(model.hook_names())
    assert_close(logits, model(tokens), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_point_acts(kind):
    model, tokens = tiny(kind), some_tokens()
    base = model(tokens)
    for name in model.hook_names():
        # unlike halves, so that neither a norm nor a softmax can undo the edit
        edited = model(
            tokens, hooks=[(name, lambda x, hook: x * torch.linspace(0.2, 3, x.shape[-1]))]
        )
        if name.endswith("hook_scale"):
            edited = model(tokens, hooks=[(name, double)])
        assert not torch.allclose(edited, base, atol=1e-4), name


def test_scores_hook_sees_minus_infinity_and_acts_before_softmax():
    model, tokens, seen = tiny(), some_tokens(), []

    def first_key_only(scores, hook):
        seen.append(scores.clone())
        scores[..., 1:] = -torch.inf

    _, cache = model.run_with_cache(
        tokens, PATTERN, hooks=[("*.1.*hook_attn_scores", first_key_only)]
    )
    future = torch.ones(12, 12).triu(1).bool()
    assert (seen[0][..., future] == -torch.inf).all()
    assert seen[0][..., ~future].isfinite().all()
    assert (cache["pattern", 1][..., 0] == 1).all()


def test_pattern_hook_materialises_only_its_own_layer():
    model, tokens, fused_layers = tiny(n_layers=3), some_tokens(), []
    from interp.attention import attend

    def watched(call, tap):
        if not tap.wants("hook_pattern", "hook_attn_scores"):
            fused_layers.append(call.layer)
        return attend(call, tap)

    model(tokens, hooks=[(PATTERN, lambda p, hook: None)], kernel=watched)
    assert fused_layers == [0, 2]
    fused_layers.clear()
    model.run_with_cache(tokens, kernel=watched)  # a cache makes patterns when they are read
    assert fused_layers == [0, 1, 2]


def test_hooks_run_in_order_on_what_the_last_one_left():
    model, tokens, seen = tiny(), some_tokens(), []
    hooks = [
        (Z, lambda z, hook: torch.ones_like(z)),
        ("*.0.*hook_z", lambda z, hook: z.add_(1)),
        (lambda name: name == Z, lambda z, hook: seen.append(z.unique().tolist())),
    ]
    model(tokens, hooks=hooks)
    assert seen == [[2.0]]


@pytest.mark.parametrize("grad", [False, True])
def test_an_edit_in_place_counts_everywhere(grad):
    model, tokens = tiny("llama"), some_tokens()
    for name in model.hook_names():
        with torch.set_grad_enabled(grad):
            there = model(tokens, hooks=[(name, lambda x, hook: x * 1.5)])
            in_place = model(tokens, hooks=[(name, lambda x, hook: _mul(x))])
        assert torch.equal(in_place, there), name
    assert torch.equal(model(tokens), model(tokens))


def _mul(x):
    x.mul_(1.5)


def test_in_place_edits_reach_no_weight():
    model, tokens = tiny("mlp"), some_tokens(batch=1)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        model(tokens, hooks=[("*", lambda x, hook: _mul(x))])
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())


def test_a_tensor_kept_by_one_hook_is_not_changed_by_the_next():
    model, tokens, kept = tiny(), some_tokens(), []
    model(tokens, hooks=[
        ("blocks.0.hook_resid_post", lambda x, hook: kept.append((x, x.clone()))),
        ("blocks.0.hook_resid_post", lambda x, hook: _mul(x)),
        ("blocks.1.hook_resid_pre", lambda x, hook: _mul(x)),
    ])  # fmt: skip
    assert torch.equal(*kept[0])


def test_misspelt_name_raises_before_anything_is_computed():
    model, tokens, ran = tiny(), some_tokens(), []
    hooks = [("*hook_embed", lambda x, hook: ran.append(1)), ("blocks.1.attn.pattern", double)]
    with pytest.raises(LookupError, match=r"blocks\.1\.attn\.hook_pattern"):
        model(tokens, hooks=hooks)
    assert ran == []
    with pytest.raises(LookupError, match="no activation"):
        model(tokens, hooks=[("blocks.1.hook_resid_pre", double)], stop_at_layer=1)
    with pytest.raises(LookupError), model.hooks([("blocks.9.*", double)]):
        pass


@pytest.mark.parametrize(
    ("hook", "error", "message"),
    [
        (lambda x, hook: "no", TypeError, "returned str"),
        (lambda x, hook: x[:1], ValueError, "returned shape"),
    ],
)
def test_a_hook_that_returns_nonsense_is_told_so(hook, error, message):
    with pytest.raises(error, match=message):
        tiny()(some_tokens(), hooks=[(Z, hook)])


def test_a_hook_that_is_no_pair_is_told_so():
    with pytest.raises(TypeError, match="hooks are pairs"):
        tiny()(some_tokens(), hooks=[double])
    with pytest.raises(TypeError, match="hooks are pairs"):
        tiny()(some_tokens(), hooks=[(Z, "not a function")])


def test_nothing_is_left_after_an_exception_nested_or_not():
    model, tokens = tiny(), some_tokens()
    base = model(tokens)
    with model.hooks([(Z, double)]):
        doubled = model(tokens)
        for fails in (
            lambda: model(tokens, hooks=[(PATTERN, boom)]),
            lambda: model.run_with_cache(tokens, hooks=[(PATTERN, boom)]),
            lambda: model.run_with_hooks(tokens, [(PATTERN, boom)]),
        ):
            with pytest.raises(KeyError):
                fails()
            assert torch.equal(model(tokens), doubled)
        with pytest.raises(KeyError), model.hooks([("blocks.1.hook_resid_pre", boom)]):
            model(tokens)
        assert torch.equal(model(tokens), doubled)
    assert not torch.allclose(doubled, base)
    assert torch.equal(model(tokens), base)


def test_a_block_of_hooks_stays_in_its_thread_and_on_its_model():
    model, other, tokens, elsewhere = tiny(), tiny(), some_tokens(), []
    base = model(tokens)
    with model.hooks([(Z, double)]):
        thread = threading.Thread(target=lambda: elsewhere.append(model(tokens)))
        thread.start()
        thread.join()
        assert torch.equal(other(tokens), base)
        assert not torch.allclose(model(tokens), base)
    assert torch.equal(elsewhere[0], base)


def test_add_hook_says_what_to_write_instead():
    for name in ("add_hook", "reset_hooks"):
        with pytest.raises(AttributeError, match="hooks="):
            getattr(tiny(), name)()


def test_backward_hooks_read_and_replace_gradients():
    model, tokens, seen = tiny(), some_tokens(), []
    point = "blocks.0.hook_resid_post"
    model.run_with_hooks(
        tokens, [], [(point, lambda g, hook: seen.append(g.clone()))], return_type="loss"
    ).backward()
    _, cache = model.run_with_cache(tokens, point, return_type="loss", keep_gradients=True)
    loss, cache = model.run_with_cache(tokens, point, return_type="loss", keep_gradients=True)
    (gradient,) = torch.autograd.grad(loss, cache[point])
    assert_close(seen[0], gradient)
    model.zero_grad()
    model.run_with_hooks(
        tokens, [], [(point, lambda g, hook: torch.zeros_like(g))], return_type="loss"
    ).backward()
    assert (model.embed.weight.grad == 0).all()
    assert (model.unembed.weight.grad != 0).any()
    with torch.no_grad(), pytest.raises(RuntimeError, match="needs gradients"):
        model.run_with_hooks(tokens, [], [(point, lambda g, hook: None)])


def test_hook_points_know_their_layer():
    assert HookPoint("blocks.3.attn.hook_z").layer() == 3
    with pytest.raises(ValueError, match="in no layer"):
        HookPoint("hook_embed").layer()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_model_traces_whole_and_hooks_act_on_it():
    model, tokens = tiny(), some_tokens()
    whole = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(whole(tokens), model(tokens))
    mask = torch.tensor([[0, 0] + [1] * 10] * 3).bool()
    assert_close(whole(tokens, mask=mask), model(tokens, mask=mask))
    compiled = torch.compile(model, backend="eager")
    base, hooked = compiled(tokens), model(tokens, hooks=[(Z, double)])
    assert_close(compiled(tokens, hooks=[(Z, double)]), hooked)
    with model.hooks([(Z, double)]):
        assert_close(compiled(tokens), hooked)
    assert_close(compiled(tokens), base)
