"""Faults that other tools had, and what ablation refuses."""

import pytest
import torch

from interp import TransformerConfig, ablation
from interp.metrics import loss
from interp.sweeps import examples_of
from tests.scrambled import scrambled


def model_of(**options):
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 16, "n_ctx": 20, "d_mlp": 64}
    return scrambled(TransformerConfig(**(sizes | options)))


@pytest.fixture
def model():
    return model_of()


@pytest.fixture
def tokens(generator):
    return torch.randint(16, (4, 10), generator=generator)


@pytest.mark.parametrize(
    ("kind", "positional"), [("zero", "learned"), ("uniform", "learned"), ("uniform", "alibi")]
)
def test_a_head_that_writes_nothing_costs_exactly_nothing(tokens, kind, positional):
    model = model_of(positional=positional)
    with torch.no_grad():
        model.blocks[0].attn.W_O[2] = 0
        cut = ablation.ablate(model, tokens, heads=[(0, 2)], kind=kind)
        others = ablation.ablate(model, tokens, heads=[(0, 1)], kind=kind)
        if positional == "alibi":  # which materialises the layer, so that the baseline must too
            as_it_is = [("blocks.0.attn.hook_pattern", lambda p, hook: p)]
            clean = model(tokens, hooks=as_it_is)
        else:
            clean = model(tokens)
    assert (cut - clean).abs().max() == 0
    swept = ablation.sweep(model, tokens, kind=kind, memory=1)
    assert (swept.per_example[0, 2] == 0).all()
    assert (others - model(tokens)).abs().max() > 1e-3


def test_mean_is_per_position_over_the_batch(model, tokens):
    same = tokens[:1].expand(6, -1)
    cut = ablation.ablate(model, same, heads=[(0, 2)], kind="mean", reference=same)
    torch.testing.assert_close(cut, model(same), atol=1e-5, rtol=1e-4)
    grand = ablation.ablate(model, same, heads=[(0, 2)], kind="grand_mean", reference=same)
    assert (grand - model(same)).abs().max() > 1e-2


def test_reference_mean_ignores_pads_and_batching(model, tokens):
    wanted = ablation.reference_mean(model, tokens)
    padded = torch.cat([torch.full((4, 3), 7), tokens, torch.full((4, 2), 9)], 1)
    mask = torch.zeros_like(padded, dtype=torch.bool)
    mask[:, 3:13] = True
    for size in (1, 3, 256):
        got = ablation.reference_mean(model, padded, mask=mask, batch_size=size)
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-5)
    _, cache = model.run_with_cache(tokens, "*.hook_z")
    torch.testing.assert_close(wanted, cache.stack("z").mean(1), atol=1e-6, rtol=1e-5)


def test_means_are_summed_in_float32_and_given_in_the_model_s_dtype(tokens):
    half = model_of().to(torch.bfloat16)
    many = tokens.repeat(64, 1)  # 256 examples: a sum in bfloat16 stops growing at 256 of anything
    means = ablation.reference_mean(half, many, batch_size=256)
    assert means.dtype == torch.bfloat16
    with torch.no_grad():
        z = half.run_with_cache(tokens, "blocks.0.attn.hook_z")[1]["blocks.0.attn.hook_z"]
    torch.testing.assert_close(means[0], z.float().mean(0).bfloat16(), atol=0, rtol=2**-7)


def test_ready_means_are_what_their_tokens_give(model, tokens):
    ready = ablation.reference_mean(model, tokens)
    given = {"heads": [(0, 2), (1, 1)], "kind": "mean"}
    torch.testing.assert_close(
        ablation.ablate(model, tokens, reference=ready, **given),
        ablation.ablate(model, tokens, reference=tokens, **given),
    )


@pytest.mark.parametrize("kind", ["zero", "mean", "uniform"])
@pytest.mark.parametrize("pads", [1, 3, 8])
def test_left_padding_moves_no_position(model, tokens, kind, pads):
    given = {"heads": [(0, 1)], "kind": kind, "positions": [2, 5]}
    given |= {"reference": tokens} if kind == "mean" else {}
    wanted = ablation.ablate(model, tokens, **given)
    padded = torch.cat([torch.zeros(4, pads, dtype=torch.long), tokens], 1)
    mask = torch.arange(10 + pads).expand(4, -1) >= pads
    cut = ablation.ablate(model, padded, mask=mask, **given)[:, pads:]
    torch.testing.assert_close(cut, wanted, atol=1e-5, rtol=1e-4)
    assert (wanted - model(tokens)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["zero", "mean", "grand_mean", "uniform"])
@pytest.mark.parametrize("chunks", [[10], [4, 6], [1, 1, 5, 3]])
def test_kv_cache_chunks_change_nothing(model, tokens, kind, chunks):
    given = {"heads": [(0, 1), (1, 3)], "kind": kind, "positions": [1, 4, 8]}
    given |= {"reference": tokens} if "mean" in kind else {}
    wanted = ablation.ablate(model, tokens, **given)
    kv_cache = model.new_kv_cache()
    parts = [
        ablation.ablate(model, part, kv_cache=kv_cache, **given) for part in tokens.split(chunks, 1)
    ]
    torch.testing.assert_close(torch.cat(parts, 1), wanted, atol=1e-5, rtol=1e-4)


def test_a_clean_runs_patterns_are_not_sought_in_a_kv_cache(model, tokens):
    with pytest.raises(ValueError, match="clean run"):
        ablation.ablate(
            model, tokens, heads=[(0, 1)], kind="pattern_preserving", kv_cache=model.new_kv_cache()
        )


def test_a_head_is_a_query_head_and_shared_values_are_named_apart(tokens):
    model = model_of(n_kv_heads=2)
    with pytest.raises(ValueError, match="kv_heads"):
        ablation.ablate(model, tokens, heads=[(0, 1)], site="v")
    cut = ablation.ablate(model, tokens, kv_heads=[(0, 1)], site="v")
    both = ablation.ablate(model, tokens, heads=[(0, 2), (0, 3)])  # the heads that share it
    torch.testing.assert_close(cut, both, atol=1e-5, rtol=1e-4)
    one = ablation.ablate(model, tokens, heads=[(0, 1)])
    assert (cut - one).abs().max() > 1e-3


def test_hooks_of_others_survive_failures(model, tokens):
    clean = model(tokens)

    def double(x, hook):
        return x * 2

    def boom(x, hook):
        raise ZeroDivisionError

    def shaped(x, hook):
        assert len(x) == 4  # the batch that it was given for, not a stack of them

    with model.hooks([("blocks.0.hook_resid_post", double), ("hook_embed", shaped)]):
        doubled = model(tokens)
        with pytest.raises(ValueError, match="not in this model"):
            ablation.ablate(model, tokens, heads=[(0, 99)])
        with pytest.raises(ZeroDivisionError):
            ablation.sweep(model, tokens, hooks=[("blocks.1.hook_resid_pre", boom)])
        assert torch.equal(model(tokens), doubled)
        # and an ablation inside the block is made on top of them
        under = ablation.sweep(model, tokens)
        asked = examples_of(tokens)
        cut = ablation.ablate(model, tokens, heads=[(1, 1)])
        wanted = loss(cut, asked) - loss(doubled, asked)
        torch.testing.assert_close(under.per_example[1, 1], wanted, atol=1e-5, rtol=0)
    assert torch.equal(model(tokens), clean)


@pytest.mark.parametrize("fails", [False, True])
def test_modes_and_gradients_are_put_back(tokens, fails):
    model = model_of(dropout=0.5)
    quiet = ablation.sweep(model, tokens).effect
    model.train()
    model.blocks[0].mlp.eval()

    def stop(done, total):
        if fails:
            raise KeyboardInterrupt

    if fails:
        with pytest.raises(KeyboardInterrupt):
            ablation.sweep(model, tokens, progress=stop)
    else:
        # dropout was off, though the model was training
        assert torch.equal(ablation.sweep(model, tokens, progress=stop).effect, quiet)
    assert model.training
    assert model.blocks[0].attn.training
    assert not model.blocks[0].mlp.training
    assert torch.is_grad_enabled()


def test_writing_into_a_given_activation_changes_no_clean_run(model, tokens):
    """A hook that edits in place, as people write them, under a sweep."""

    def halve(x, hook):
        x.mul_(0.5)

    hooks = [("blocks.0.attn.hook_z", halve), ("blocks.1.hook_resid_pre", halve)]
    swept = ablation.sweep(model, tokens, hooks=hooks)
    cut = ablation.ablate(model, tokens, heads=[(1, 2)], hooks=hooks)
    clean = model(tokens, hooks=hooks)
    asked = examples_of(tokens)
    wanted = loss(cut, asked) - loss(clean, asked)
    torch.testing.assert_close(swept.per_example[1, 2], wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"heads": [(0, 4)]}, "heads 0 … 3"),
        ({"heads": [(0, 1), (0, 1)]}, "twice"),
        ({"heads": [3]}, "pairs"),
        ({"heads": [(0, 1)], "kind": "none"}, "no kind"),
        ({"heads": [(0, 1)], "kind": "mean"}, "reference="),
        ({"heads": [(0, 1)], "reference": torch.zeros(1, 4, dtype=torch.long)}, "no reference"),
        ({"heads": [(0, 1)], "kind": "uniform", "site": "v"}, "of heads"),
        ({"heads": [(0, 1)], "site": "attn_out"}, "layers="),
        ({"layers": [0], "site": "z"}, "heads="),
        ({"kv_heads": [(0, 0)]}, "query heads"),
        ({"heads": [(0, 1)], "positions": [-1]}, "absolute"),
        ({"heads": [(0, 1)], "site": "nowhere"}, "no site"),
        (
            {"heads": [(0, 1)], "kind": "mean", "reference": torch.zeros(2, 4, dtype=torch.long)},
            "as long",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(model, tokens, wrong, said):
    with pytest.raises(ValueError, match=said):
        ablation.ablate(model, tokens, **wrong)
