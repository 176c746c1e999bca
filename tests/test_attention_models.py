"""Every kind of attention in a whole model: one suite, a row a kind."""

import json

import pytest
import torch

import interp
from interp import ablation
from interp.attention import MASKS, AttentionView, materialised, routes
from interp.probes import head_statistics
from tests.tiny import some_tokens, tiny

OPTIONS = {
    "causal": {},
    "full": {},
    "window": {"window": 5},
    "streaming": {"window": 4, "sinks": 2},
    "longformer": {"window": 4, "global_tokens": (0, 9)},
    "bigbird": {"window": 4, "block": 2, "random_blocks": 1},
    "linear": {},
    "performer": {"features": 16},
}
CAUSAL = [kind for kind in OPTIONS if kind != "full"]


@pytest.fixture(autouse=True)
def _skip_however_short(monkeypatch):
    """Small tests run the computations that are meant for long sequences."""
    monkeypatch.setattr(routes, "SHORTEST", 0)
    monkeypatch.setattr(routes, "SHORTEST_PADDED", 0)


def model_of(kind, base="mlp", **changes):
    return tiny(base, attention=kind, attention_options=OPTIONS[kind], **changes)


def test_every_kind_has_its_row():
    assert set(OPTIONS) == set(MASKS)


@pytest.mark.parametrize("base", ["mlp", "llama", "alibi_mqa"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_the_fused_model_is_the_materialised_one(kind, base):
    if base == "alibi_mqa" and kind in ("linear", "performer"):
        pytest.skip("no softmax, no bias: refused, see below")
    model, tokens = model_of(kind, base), some_tokens(length=24)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, :5], mask[1, 20:] = False, False
    for real in (None, mask):
        expected = model(tokens, mask=real, kernel=materialised)
        torch.testing.assert_close(model(tokens, mask=real), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", CAUSAL)
def test_chunks_through_a_cache_equal_the_whole(kind):
    model, tokens = model_of(kind, "llama"), some_tokens(length=24)
    whole, cache = model(tokens), model.new_kv_cache()
    chunks = [model(part, kv_cache=cache) for part in tokens.split([1, 10, 3, 10], 1)]
    torch.testing.assert_close(torch.cat(chunks, 1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", CAUSAL)
def test_left_padding_changes_nothing(kind):
    model, tokens = model_of(kind), some_tokens(length=20)
    padded = torch.cat([torch.zeros(3, 4, dtype=torch.long), tokens], 1)
    mask = torch.arange(24).expand(3, -1) >= 4
    torch.testing.assert_close(model(padded, mask=mask)[:, 4:], model(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", OPTIONS)
def test_gradients_are_those_of_the_materialised_model(kind):
    model, tokens = model_of(kind).double(), some_tokens(length=24)
    for kernel in ({}, {"kernel": materialised}):
        model.zero_grad()
        model.loss(tokens, **kernel).backward()
        found = torch.cat([w.grad.flatten() for w in model.parameters()])
        expected = found if not kernel else expected
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_receptive_field_of_all_layers_is_what_their_masks_reach_together(kind):
    model, tokens = model_of(kind).double(), some_tokens(batch=1, length=24)
    kept = []

    def keep(x, hook):
        kept.append(x.detach().requires_grad_())
        return kept[0]

    logits = model(tokens, hooks=[("hook_embed", keep)])
    seen = model.blocks[0].attn.rule(torch.arange(24)[:, None], torch.arange(24)).double()
    field = torch.linalg.matrix_power(seen, model.config.n_layers) > 0
    for row in (0, 9, 23):
        (found,) = torch.autograd.grad(logits[0, row].sum(), kept, retain_graph=True)
        assert torch.equal((found[0] != 0).any(-1), field[row])
    if kind == "window":  # L·(w − 1) tokens back, and not one more
        assert int(field[23].nonzero()[0]) == 23 - 2 * (5 - 1)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_pattern_hook_reads_rows_that_sum_to_one_and_editing_acts(kind):
    model, tokens = model_of(kind), some_tokens(length=24)
    _, cache = model.run_with_cache(tokens)
    pattern = cache["pattern", 1]
    torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
    seen = model.blocks[1].attn.rule(torch.arange(24)[:, None], torch.arange(24))
    assert torch.equal((pattern > 0).any(0).any(0), seen)
    cut = model(tokens, hooks=[("blocks.1.attn.hook_pattern", lambda p, hook: 0 * p)])
    without = model(tokens, hooks=[("blocks.1.attn.hook_z", lambda z, hook: 0 * z)])
    torch.testing.assert_close(cut, without)


@pytest.mark.parametrize("kind", OPTIONS)
def test_statistics_are_those_of_the_pattern(kind):
    model, tokens = model_of(kind), some_tokens(length=24)
    found = head_statistics(model, tokens)
    _, cache = model.run_with_cache(tokens)
    for layer in range(2):
        p = cache["pattern", layer].double()
        n = model.blocks[layer].attn.rule(torch.arange(24)[:, None], torch.arange(24)).sum(-1)
        rows = n > 1
        entropy = -(p * p.clamp(min=1e-300).log()).sum(-1)[..., rows] / n[rows].log()
        torch.testing.assert_close(
            found.normalized_entropy[layer].double(), entropy.mean((0, 2)), rtol=1e-4, atol=1e-5
        )
        twice = [
            [j + 1 for j in range(i) if tokens[b, j] == tokens[b, i]]
            for b in range(3)
            for i in range(24)
        ]
        weight = [
            p[r // 24, :, r % 24, [j for j in js if j <= r % 24]].sum(-1)
            for r, js in enumerate(twice)
            if js and _sees_any(model, layer, r % 24, js)
        ]
        expected = torch.stack(weight).mean(0)
        torch.testing.assert_close(found.induction[layer].double(), expected, rtol=1e-4, atol=1e-5)


def _sees_any(model, layer, row, keys):
    rule = model.blocks[layer].attn.rule
    return bool(rule(torch.tensor([[row]]), torch.tensor([keys])).any())


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_sweep_costs_what_cutting_each_head_costs(kind):
    model, tokens = model_of(kind).double(), some_tokens(length=24)
    found, clean = ablation.sweep(model, tokens, kind="zero").effect, model.loss(tokens)
    for layer, head in ((0, 1), (1, 3)):

        def cut(z, hook, head=head):
            z[:, :, head] = 0

        cost = model.loss(tokens, hooks=[(f"blocks.{layer}.attn.hook_z", cut)]) - clean
        assert float(found[layer, head]) == pytest.approx(cost.item(), abs=1e-6)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_config_comes_back_from_json(kind):
    config = model_of(kind).config
    again = interp.TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again.rule(0) == config.rule(0)


def test_layers_may_differ():
    kinds = ("window", "linear")
    model = tiny("mlp", attention=kinds, attention_options=({"window": 3}, {}))
    tokens = some_tokens(length=24)
    expected = model(tokens, kernel=materialised)
    torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positional": "alibi"}, "neither positional='alibi'"),
        ({"score_soft_cap": 5.0}, "neither positional='alibi' nor score_soft_cap"),
        ({"attention_scale": 1.0}, "leave attention_scale out"),
        ({"attention_options": {"features": 3}}, "'linear' takes causal, got 'features'"),
    ],
)
def test_what_linear_attention_lacks_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny("mlp", **{"attention": "linear", **changes})


def test_view_of_a_layer_counts_the_keys_that_its_mask_shows():
    model, tokens = model_of("streaming"), some_tokens(length=24)
    calls = []

    def kernel(call, tap):
        calls.append(call)
        return materialised(call, tap)

    model(tokens, kernel=kernel)
    expected = torch.arange(1, 25).clamp(max=6)
    assert torch.equal(AttentionView.of(calls[0]).visible_keys()[0, 0], expected)


@pytest.mark.parametrize("kind", ["streaming", "longformer", "bigbird", "performer"])
def test_one_graph_holds_the_whole_model(kind):
    model, tokens = model_of(kind), some_tokens(length=24)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(tokens), model(tokens))
