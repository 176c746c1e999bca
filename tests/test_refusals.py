"""What can't be done is refused with what was wanted, not somewhere inside."""

from functools import partial

import pytest
import torch

import interp
from interp import ablation, circuits, lens, patching, plots, probes
from interp.attention import AttentionView


def config(**changes):
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 16, "d_vocab": 16, "n_ctx": 32}
    return interp.TransformerConfig(**(sizes | changes))


@pytest.fixture
def tokens():
    return torch.arange(18).view(2, 9) % 16


def model(**changes):
    return interp.Transformer(config(**changes)).eval()


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": 5},
        {"attention_options": None},
        {"attention_scale": "0.5"},
        {"dropout": "0.1"},
        {"dropout": None},
        {"bos_token": "a"},
        {"init_seed": 1.5},
        {"init_scale": -1},
        {"init_scale": "a"},
        {"norm_eps": "1e-5"},
        {"score_soft_cap": "30"},
        {"tied_embeddings": "yes"},
        {"positional": "alibi", "alibi_slopes": "abcd"},
        {"positional": "rotary", "rotary_scaling": 2},
        {"positional": "rotary", "rotary_scaling": {"kind": "linear", "factor": "2"}},
    ],
)
def test_a_field_of_another_type_is_named(changes):
    with pytest.raises(ValueError, match=list(changes)[-1]):
        config(**changes)


def test_a_model_is_made_of_a_config():
    with pytest.raises(TypeError, match="wanted a TransformerConfig, got dict"):
        interp.Transformer({"n_layers": 2})


def test_tokens_and_masks_of_another_kind_are_refused(tokens):
    with pytest.raises(TypeError, match="wanted token ids"):
        model()(tokens > 3)
    with pytest.raises(TypeError, match="mask must be a bool tensor"):
        model()(tokens, mask=[[True] * 9] * 2)
    with pytest.raises(ValueError, match=r"use tokens\[None\]"):
        model().generate(tokens[0])
    with pytest.raises(ValueError, match="max_new_tokens"):
        model().generate(tokens, max_new_tokens=2.5)


def test_the_cache_of_another_model_is_refused(tokens):
    with pytest.raises(TypeError, match="new_kv_cache"):
        model()(tokens, kv_cache=5)
    with pytest.raises(ValueError, match="a model of 1 layers"):
        model()(tokens, kv_cache=model(n_layers=1).new_kv_cache())
    kv = model(n_heads=2, n_kv_heads=1).new_kv_cache()
    model(n_heads=2, n_kv_heads=1)(tokens, kv_cache=kv)
    with pytest.raises(ValueError, match="this model writes"):
        model(n_heads=2, n_kv_heads=2)(tokens, kv_cache=kv)


@pytest.mark.parametrize(
    "options", [{"stop_at_layer": 1}, {"start_at_layer": 0}, {"return_type": "logits"}]
)
def test_a_loss_ignores_no_option(tokens, options):
    with pytest.raises(ValueError, match=f"leave {next(iter(options))} out"):
        model().loss(tokens, **options)


def test_a_hook_that_changes_the_type_is_named(tokens):
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: z.double())]
    with pytest.raises(TypeError, match=r"hook at 'blocks.0.attn.hook_z' returned torch.float64"):
        model()(tokens, hooks=hooks)


@pytest.mark.parametrize(
    "read",
    [
        interp.fold_layer_norm,
        interp.center_writing_weights,
        interp.center_unembed,
        interp.fold_value_biases,
        circuits.copying_score,
        lambda other: circuits.ov(other, 0, 0),
        lambda other: circuits.composition_scores(other, "K"),
        lambda other: interp.save(other, "nowhere"),
        lambda other: interp.save_transformer_lens(other, "nowhere"),
        lambda other: lens.logit_lens(other, torch.zeros(1, 3).long()),
    ],
)
def test_weights_are_read_from_our_models_only(read):
    with pytest.raises(TypeError, match=r"wanted an interp.Transformer.*got Linear"):
        read(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    "ask",
    [
        probes.head_statistics,
        probes.offset_profile,
        lambda other, tokens: probes.head_score(other, tokens, lambda t: t),
        lambda other, tokens: probes.HeadStatisticsStream(other),
        lambda other, tokens: probes.induction_scores(other),
        lambda other, tokens: probes.find_induction_heads(other),
        lambda other, tokens: probes.pattern_divergence(other, model(), tokens),
        lambda other, tokens: probes.pattern_divergence(model(), other, tokens),
        lambda other, tokens: probes.sweep_probes(other, tokens=tokens, labels=tokens),
    ],
)
@pytest.mark.parametrize("other", [torch.nn.Linear(2, 2), None])
def test_probes_run_models_only(ask, other, tokens):
    with pytest.raises(TypeError, match=rf"interp.wrap\(model\).*got {type(other).__name__}"):
        ask(other, tokens)


@pytest.mark.parametrize("key", [0, None, (), ("z",), ("z", "0"), ("z", None), ("z", 0, "a", "b")])
def test_a_cache_says_how_it_is_read(key, tokens):
    _, cache = model().run_with_cache(tokens)
    with pytest.raises(TypeError, match=r'by \(name, layer\).*cache\["z", 0\].*got'):
        cache[key]
    assert key not in cache
    assert ("z", 0) in cache


VIEW = AttentionView(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda q: AttentionView(q, q, bias=q), "bias must be a function.*got Tensor"),
        (lambda q: AttentionView(q, q, soft_cap=0), "soft_cap must be a number above 0.*got 0"),
        (lambda q: AttentionView(q, q, soft_cap=-3.0), "soft_cap must be a number above 0"),
        (lambda q: AttentionView(q, q, memory="1 GB"), "positive number of bytes, got '1 GB'"),
        (lambda _: VIEW.renyi_entropy("2"), "order of at least 0, got '2'"),
        (lambda _: VIEW.top_keys(2.5), "whole number of keys.*got k=2.5"),
        (lambda _: VIEW.weight_at([0, 0, 0, 0, 0]), "got list; use torch.tensor"),
        (lambda _: VIEW.share_of([0, 5]), r"indices from 0 to 4, got \[0, 5\]"),
        (lambda _: VIEW.share_of([-1]), r"indices from 0 to 4, got \[-1\]"),
        (lambda _: VIEW.share_of(torch.tensor([0, 1])), r"keys is bools.*use keys.tolist\(\)"),
        (lambda _: VIEW.divergence_to(3), "another AttentionView, got int"),
        (lambda _: probes.entropy(None), "wanted a pattern.*got NoneType"),
    ],
)
def test_a_view_says_what_can_be_asked(ask, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ask(torch.zeros(1, 2, 5, 4))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: probes.HeadStatisticsStream(model()).result(), r"call .update\(tokens\) first"),
        (lambda t: probes.head_statistics(model(), t, batch_size=1.5), "at least 1; got 1.5"),
        (lambda t: probes.offset_profile(model(), t, max_distance=2.5), "whole numbers.*2.5"),
        (lambda t: probes.head_score(model(), t, "previous"), "function of tokens, got str"),
        (lambda t: probes.induction_scores(model(), n_sequences=1.5), "at least 1; got 1.5"),
        (lambda t: probes.induction_scores(model(), generator=3), "torch.Generator, or None.*int"),
        (lambda t: probes.sweep_probes(model(), tokens=t, labels=[0, 1]), "labels must.*got list"),
    ],
)
def test_probes_say_what_they_want(ask, message, tokens):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        ask(tokens)


def test_a_result_is_not_written_over_a_folder(tmp_path, tokens):
    found = probes.head_statistics(model(), tokens)
    with pytest.raises(IsADirectoryError, match=r"got the folder.*for instance .*result.json"):
        found.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert found.save(tmp_path / "result.json").exists()


def test_an_answer_that_is_no_token_is_refused(tokens):
    with pytest.raises(ValueError, match=r"answer must lie in \[0, 16\)"):
        lens.direct_logit_attribution(model(), tokens, tokens + 16)
    with pytest.raises(ValueError, match=r"wrong must lie in \[0, 16\)"):
        lens.direct_logit_attribution(model(), tokens, tokens, torch.full_like(tokens, -1))


def test_attention_without_a_softmax_has_no_score_to_split(tokens):
    with pytest.raises(ValueError, match="no scores before a softmax"):
        circuits.score_attribution(model(attention="linear"), tokens[:1], 1, 2, 5, 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_read_like_others(tokens, dtype):
    small = model(positional="rotary").to(dtype)
    wide = model(positional="rotary")
    wide.load_state_dict({name: x.float() for name, x in small.state_dict().items()})
    ours = [
        circuits.ov(small, 0, 1).svd[1],
        circuits.score_attribution(small, tokens[:1], 1, 2, 5, 3).parts,
        lens.direct_logit_attribution(small, tokens, tokens).effect,
    ]
    theirs = [
        circuits.ov(wide, 0, 1).svd[1],
        circuits.score_attribution(wide, tokens[:1], 1, 2, 5, 3).parts,
        lens.direct_logit_attribution(wide, tokens, tokens).effect,
    ]
    for got, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got.float(), wanted, atol=0.05, rtol=0.05)


def test_positions_that_no_token_has_are_refused(tokens):
    for experiment in (ablation.sweep, partial(ablation.ablate, heads=[(0, 1)])):
        with pytest.raises(ValueError, match="positions end at 8 here"):
            experiment(model(), tokens, positions=[9])
        for odd in (3, [1.5]):
            with pytest.raises(TypeError, match="positions are a list of whole numbers"):
                experiment(model(), tokens, positions=odd)


def test_a_reference_without_tokens_is_refused(tokens):
    with pytest.raises(ValueError, match="a reference needs a real token"):
        ablation.reference_mean(model(), tokens[:0])
    with pytest.raises(ValueError, match="a reference needs a real token"):
        ablation.reference_mean(model(), tokens, mask=torch.zeros(2, 9).bool())


def test_what_an_attention_map_shows_and_who_draws_a_batch_are_checked():
    with pytest.raises(ValueError, match="what is one of probability"):
        plots.attention(torch.eye(3)[None], what="foo")
    with pytest.raises(TypeError, match="drawn by a torch.Generator, got int"):
        interp.tasks.make("copy").batch(3, 5)


@pytest.mark.parametrize("memory", [-1, 0])
def test_a_bound_on_memory_that_is_none_is_refused(tokens, memory):
    other = tokens.flip(1)
    with pytest.raises(ValueError, match=f"a bound in bytes, at least 1; got {memory}"):
        ablation.sweep(model(), tokens, memory=memory)
    for patched in (patching.activation_patching, patching.path_patching, patching.edge_patching):
        with pytest.raises(ValueError, match="a bound in bytes"):
            patched(model(), tokens, other, memory=memory)


def test_cutting_nothing_is_refused(tokens):
    with pytest.raises(ValueError, match="nothing is named to be cut"):
        ablation.ablate(model(), tokens)
    with pytest.raises(ValueError, match="at least one head"):
        ablation.sweep(model(), tokens, heads=[])


def test_receivers_are_the_logits_or_heads(tokens):
    with pytest.raises(ValueError, match=r"'logits' or pairs .* got 'foo'"):
        patching.path_patching(model(), tokens, tokens.flip(1), receivers="foo")


def test_wrapped_models_say_which_tokens_do_not_fit():
    pytest.importorskip("transformers")
    from tests.hugging_face_models import make

    gpt2, llama = interp.wrap(make("gpt2")), interp.wrap(make("llama"))
    for wrapped in (gpt2, llama):
        for token in (40, -1):
            with pytest.raises(ValueError, match=r"tokens must lie in \[0, 40\)"):
                wrapped(torch.full((1, 5), token))
        with pytest.raises(TypeError, match="wanted token ids"):
            wrapped(torch.zeros(1, 5))
        with pytest.raises(ValueError, match=r"tokens\[None\]"):
            wrapped(torch.zeros(5, dtype=torch.long))
        for empty in (torch.zeros(0, 5).long(), torch.zeros(2, 0).long()):
            for ask in (wrapped, lambda none, of=wrapped: probes.head_statistics(of, none)):
                with pytest.raises(ValueError, match="at least one sequence of one token, got"):
                    ask(empty)
    long = torch.zeros(1, 65, dtype=torch.long)
    with pytest.raises(ValueError, match="65 tokens are more than GPT2LMHeadModel's context"):
        gpt2(long)
    assert gpt2(long[:, :64]).isfinite().all()
    assert llama(long).isfinite().all()  # rotations have no last position
