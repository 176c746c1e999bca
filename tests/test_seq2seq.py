"""An encoder–decoder: what may see what, every activation by name, and the reverse task."""

import pytest
import torch
from torch.nn import functional as F

import interp
from interp import tasks
from interp.attention import CACHES, materialised
from interp.config import TransformerConfig
from interp.seq2seq import Seq2SeqConfig, Seq2SeqTransformer
from tests.tiny import scramble, some_tokens

BASES = {
    "learned": {},
    "rotary": {"positional": "rotary", "n_kv_heads": 2, "normalization": "rms_norm"},
    "sinusoidal attention only": {"positional": "sinusoidal", "d_mlp": None},
    "alibi": {"positional": "alibi", "gated_mlp": True, "qk_normalization": "rms_norm"},
}
bases = pytest.mark.parametrize("base", BASES)


def config_of(encoder=None, **changes):
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 20, "n_ctx": 24, "d_mlp": 64}
    own = TransformerConfig(**{**sizes, **changes})
    read = TransformerConfig(**{**sizes, **changes, "attention": "full", **(encoder or {})})
    return Seq2SeqConfig(encoder=read, decoder=own)


def tiny(base="learned"):
    return scramble(Seq2SeqTransformer(config_of(**BASES[base]))).eval()


def source():
    return some_tokens(length=9, seed=3)


@bases
def test_the_cache_holds_every_name_in_order(base):
    model = tiny(base)
    flowed = []
    hooks = [(lambda name: True, lambda x, hook: flowed.append(hook.name))]
    logits, cache = model.run_with_cache(source(), some_tokens())
    assert logits.shape == (3, 12, 20)
    assert set(cache) == {n for n in model.hook_names() if not n.endswith("_input")} - {
        n for n in model.hook_names() if n.endswith(("hook_attn_in", "hook_mlp_in"))
    }
    model(source(), some_tokens(), hooks=hooks)
    assert list(dict.fromkeys(flowed)) == model.hook_names()  # ln1 runs for q, k and v each


@bases
def test_fused_and_materialised_models_agree_with_pads(base):
    model, reads, says = tiny(base), source(), some_tokens()
    real = torch.ones_like(reads, dtype=torch.bool)
    real[0, 6:], real[1, :2] = False, False
    mask = torch.ones_like(says, dtype=torch.bool)
    mask[2, :3] = False
    for masks in ({}, {"source_mask": real, "mask": mask}):
        expected = model(reads, says, kernel=materialised, **masks)
        torch.testing.assert_close(model(reads, says, **masks), expected, rtol=1e-4, atol=1e-5)
    other = torch.where(real, reads, 7)
    torch.testing.assert_close(
        model(other, says, source_mask=real, mask=mask), expected, rtol=1e-4, atol=1e-5
    )


def test_the_decoder_sees_no_later_token_and_all_of_the_source():
    model, reads, says = tiny(), source(), some_tokens()
    stream = {}

    def keep(name):
        def hook(x, hook):
            stream[name] = x.requires_grad_() if x.is_leaf else x
            stream[name].retain_grad()

        return hook

    names = ("encoder.hook_embed", "decoder.hook_embed")
    logits = model(reads, says, hooks=[(n, keep(n)) for n in names])
    logits[0, 5].sum().backward()
    assert (stream["decoder.hook_embed"].grad[0, 6:] == 0).all()
    assert (stream["decoder.hook_embed"].grad[0, :6] != 0).any(-1).all()
    assert (stream["encoder.hook_embed"].grad[0] != 0).any(-1).all()


def test_cross_attention_is_of_the_decoders_queries_to_the_encoders_keys():
    model, reads, says = tiny("rotary"), source(), some_tokens()
    _, cache = model.run_with_cache(reads, says)
    inner = "decoder.blocks.1.cross_attn"
    q, k, v = (cache[f"{inner}.hook_{x}"] for x in "qkv")
    assert k.shape == (3, 9, 2, 8)
    pattern = cache[f"{inner}.hook_pattern"]
    k, v = (x.repeat_interleave(2, 2) for x in (k, v))
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k) * 8**-0.5
    torch.testing.assert_close(pattern, scores.softmax(-1))
    z = torch.einsum("bhqk,bkhe->bqhe", pattern, v)
    torch.testing.assert_close(z, cache[f"{inner}.hook_z"])
    writes = cache[f"{inner}.hook_result"].sum(2)
    torch.testing.assert_close(
        writes + model.decoder.blocks[1].cross_attn.b_O,
        cache["decoder.blocks.1.hook_cross_attn_out"],
    )
    torch.testing.assert_close(
        cache["decoder.blocks.1.hook_resid_cross"] + cache["decoder.blocks.1.hook_cross_attn_out"],
        cache["decoder.blocks.1.hook_resid_mid"],
    )


def test_cutting_cross_attention_makes_the_source_matter_no_more():
    model, says = tiny(), some_tokens()
    cut = [("decoder.blocks.*.hook_cross_attn_out", lambda x, hook: 0 * x)]
    a, b = (model(reads, says, hooks=cut) for reads in (source(), source().flip(1)))
    assert torch.equal(a, b)
    assert not torch.allclose(model(source(), says), model(source().flip(1), says))


@bases
def test_generation_is_greedy_recomputation(base):
    model, says = tiny(base), some_tokens(length=2)
    found = model.generate(source(), says, 12)
    expected = model(source(), found[:, :-1])[:, 1:].argmax(-1)
    assert torch.equal(found[:, 2:], expected)


@bases
@pytest.mark.parametrize("cache", CACHES)
def test_chunks_through_a_cache_are_the_logits_of_the_whole(base, cache):
    model, says = tiny(base), some_tokens(length=12)
    real = torch.ones_like(source(), dtype=torch.bool)
    real[0, 6:] = False
    kv = model.new_kv_cache(cache)
    chunks = [
        model(source(), part, source_mask=real, kv_cache=kv) for part in says.split([5, 1, 1, 5], 1)
    ]
    whole = model(source(), says, source_mask=real)
    torch.testing.assert_close(torch.cat(chunks, 1), whole, rtol=1e-4, atol=1e-5)


def test_pads_of_the_decoder_stay_out_of_its_cache():
    model, says = tiny("rotary"), some_tokens(length=10)
    padded = torch.cat([torch.zeros(3, 4, dtype=torch.long), says], 1)
    mask = torch.arange(14).expand(3, -1) >= 4
    kv = model.new_kv_cache()
    parts = zip(padded.split(6, 1), mask.split(6, 1), strict=True)
    logits = [model(source(), t, mask=m, kv_cache=kv) for t, m in parts]
    expected = model(source(), says)
    torch.testing.assert_close(torch.cat(logits, 1)[:, 4:], expected, rtol=1e-4, atol=1e-5)


def test_a_filled_cache_computes_nothing_of_the_source_again():
    model, says, flowed = tiny("alibi"), some_tokens(), []
    kv = model.new_kv_cache()
    model(source(), says[:, :5], kv_cache=kv)
    fork, hooks = kv.fork(), [(lambda name: True, lambda x, hook: flowed.append(hook.name))]
    logits = model(source(), says[:, 5:], kv_cache=kv, hooks=hooks)
    names = list(dict.fromkeys(flowed))
    of_source = [n for n in model.hook_names() if n not in names]
    assert names == [n for n in model.hook_names() if n in names]
    assert all(
        n.startswith("encoder.") or "cross_attn.hook_k" in n or "cross_attn.hook_v" in n
        or "cross_attn.k_norm" in n
        for n in of_source
    )  # fmt: skip
    assert len(of_source) > 20
    torch.testing.assert_close(logits, model(source(), says)[:, 5:], rtol=1e-4, atol=1e-5)
    with pytest.raises(LookupError, match="encoder.hook_embed"):
        model(source(), says[:, 5:], kv_cache=fork, hooks=[("encoder.hook_embed", hooks[0][1])])
    torch.testing.assert_close(model(source(), says[:, 5:], kv_cache=fork), logits)


def test_a_cache_of_another_source_or_batch_is_refused_and_stays_as_it_was():
    model, says = tiny(), some_tokens()
    kv = model.new_kv_cache()
    model(source(), says[:, :5], kv_cache=kv)
    with pytest.raises(ValueError, match="another source"):
        model(source().flip(1), says[:, 5:], kv_cache=kv)
    with pytest.raises(ValueError, match="another source"):
        mask = torch.arange(9).expand(3, -1) > 0
        model(source(), says[:, 5:], source_mask=mask, kv_cache=kv)
    with pytest.raises(ValueError, match="holds 3 sequences"):
        model(source(), says[:2, 5:], kv_cache=kv)
    with pytest.raises(ValueError, match="20 tokens behind 5 cached ones"):
        model(source(), some_tokens(length=20), kv_cache=kv)
    with pytest.raises(ValueError, match="n_ctx=24; ask for fewer"):
        model.generate(source(), says, 13)
    logits = model(source(), says[:, 5:], kv_cache=kv)
    torch.testing.assert_close(logits, model(source(), says)[:, 5:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_comes_back_bit_by_bit(tmp_path, tied):
    kinds = {"attention": "streaming", "attention_options": {"window": 4, "sinks": 1}}
    config = config_of({"attention_options": {}}, tied_embeddings=tied, **kinds)
    model = scramble(Seq2SeqTransformer(config)).eval()
    interp.save(model, tmp_path / "it", note="plain")
    again = interp.load_seq2seq(tmp_path / "it")
    assert again.config == model.config
    assert again.unembed.weight is again.decoder.embed.weight if tied else not again.training
    assert torch.equal(again(source(), some_tokens()), model(source(), some_tokens()))


def test_loading_the_wrong_kind_of_model_says_which_call_is_right(tmp_path):
    interp.save(tiny(), tmp_path / "two")
    interp.save(interp.Transformer(tiny().config.decoder), tmp_path / "one")
    with pytest.raises(ValueError, match="interp.load_seq2seq reads it"):
        interp.load(tmp_path / "two")
    with pytest.raises(ValueError, match="interp.load reads it"):
        interp.load_seq2seq(tmp_path / "one")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"d_model": 16}}, "equally wide"),
        ({"attention": "full"}, "sees later tokens"),
        ({"positional": "shortformer"}, "neither positional='shortformer'"),
    ],
)
def test_what_cannot_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config_of(**changes)


def test_wrong_tokens_and_names_are_refused():
    model = tiny()
    with pytest.raises(ValueError, match="more than this stack's n_ctx=24"):
        model(some_tokens(length=25), some_tokens())
    with pytest.raises(ValueError, match="must lie in"):
        model(source() + 20, some_tokens())
    with pytest.raises(LookupError, match="cross_attn.hook_pattern"):
        model(source(), some_tokens(), hooks=[("cross_attn.hook_pattern", lambda x, hook: x)])


def test_sources_that_do_not_fit_are_refused():
    model, reads, says = tiny(), source(), some_tokens()
    with pytest.raises(ValueError, match="one source for each row of tokens, got 2 sources and 3"):
        model(reads[:2], says)
    with pytest.raises(ValueError, match="at least one token"):
        model(reads[:, :0], says)
    real = torch.ones_like(reads, dtype=torch.bool)
    real[1] = False
    for call in (model, model.run_with_cache):
        with pytest.raises(ValueError, match=r"all pads: 1; .*source_mask"):
            call(reads, says, source_mask=real)
    with pytest.raises(TypeError, match="integer tensor"):
        model(None, says)


def test_caches_and_configs_of_another_kind_are_refused():
    model, reads, says = tiny(), source(), some_tokens()
    other = interp.Transformer(model.config.decoder).new_kv_cache()
    for call in (model, lambda *given, **rest: model.generate(*given, 3, **rest)):
        with pytest.raises(TypeError, match=r"new_kv_cache\(\), got KVCache"):
            call(reads, says, kv_cache=other)
    deeper = Seq2SeqTransformer(config_of(n_layers=3)).new_kv_cache()
    with pytest.raises(ValueError, match="a decoder of 3 layers, this one has 2"):
        model(reads, says, kv_cache=deeper)
    with pytest.raises(TypeError, match=r"encoder must be a TransformerConfig, got NoneType"):
        Seq2SeqConfig(encoder=None, decoder=None)
    with pytest.raises(TypeError, match=r"decoder must be .*got dict.*from_dict"):
        Seq2SeqConfig(encoder=model.config.encoder, decoder={})
    with pytest.raises(TypeError, match="wanted a Seq2SeqConfig, got dict"):
        Seq2SeqTransformer({})
    with pytest.raises(ValueError, match="with encoder and decoder, got NoneType"):
        Seq2SeqConfig.from_dict(None)
    with pytest.raises(TypeError, match="got Seq2SeqTransformer"):
        interp.ablation.sweep(model, says)


@pytest.mark.parametrize("temperature", [float("nan"), float("inf"), -1.0, "hot"])
def test_a_temperature_that_is_none_is_refused(temperature):
    draw, model = torch.Generator().manual_seed(0), tiny()
    alone = interp.Transformer(model.config.decoder)
    for generate in (lambda *given, **how: model.generate(source(), *given, **how), alone.generate):
        with pytest.raises(ValueError, match="finite number ≥ 0"):
            generate(some_tokens(), 3, temperature=temperature, generator=draw)


def test_it_learns_to_reverse_and_its_cross_attention_is_the_anti_diagonal():
    task = tasks.make("reverse", vocab=8, length=18, encoder_decoder=True)
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 32, "d_mlp": 64, "n_ctx": 8}
    read = TransformerConfig(**sizes, d_vocab=task.d_vocab, attention="full")
    model = Seq2SeqTransformer(
        Seq2SeqConfig(encoder=read, decoder=TransformerConfig(**sizes, d_vocab=task.d_vocab))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        batch = task.batch(64, generator)
        logits = model(batch.source, batch.tokens)
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    test = task.batch(128, generator, split="held_out")
    logits, cache = model.run_with_cache(test.source, test.tokens, "*cross_attn.hook_pattern")
    accuracy = float((logits.argmax(-1) == test.targets).float().mean())
    assert accuracy >= 0.99
    pattern = cache["decoder.blocks.0.cross_attn.hook_pattern"].mean(0)
    assert float(pattern.flip(-1).diagonal(dim1=-2, dim2=-1).mean(-1).max()) > 0.8
