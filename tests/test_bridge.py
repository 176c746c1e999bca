"""TransformerLens 4's bridges: read, written and wrapped, equal to 1e-5 where both can."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import TransformerConfig, from_bridge, probes, to_bridge, wrap
from tests.hugging_face_models import FAMILIES, make, of_class, save_with_tokenizer
from tests.scrambled import scrambled

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]])
SIZES = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 40, "n_ctx": 16, "d_mlp": 48}


def booted(hf, folder):
    """A bridge before this Hugging Face model."""
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.sources import transformers as source

    assert source is not None  # importing it gives TransformerBridge its boot_transformers
    save_with_tokenizer(hf, folder)
    return TransformerBridge.boot_transformers(str(folder), device="cpu")


@pytest.fixture(scope="module")
def bridges(tmp_path_factory):
    """One bridge a family, booted when it is first asked for."""
    made = {}

    def get(family):
        if family not in made:
            hf = make(family, attn_implementation="eager")
            made[family] = booted(hf, tmp_path_factory.mktemp(family))
        return made[family]

    return get


configs = st.fixed_dictionaries(
    {
        "n_kv_heads": st.sampled_from([None, 1, 2]),
        "activation": st.sampled_from(["gelu", "gelu_tanh", "relu", "silu", "solu"]),
        "positional": st.sampled_from(["learned", "sinusoidal", "none", "rotary"]),
        "normalization": st.sampled_from(
            ["layer_norm", "layer_norm_pre", "rms_norm", "rms_norm_pre"]
        ),
        "attention": st.sampled_from(["causal", "full"]),
        "attention_scale": st.sampled_from([None, 0.5]),
        "score_soft_cap": st.sampled_from([None, 3.0]),
        "logit_soft_cap": st.sampled_from([None, 5.0]),
        "bias": st.sampled_from([True, False, ("qkv", "norm")]),
        "tied_embeddings": st.booleans(),
        "gated_mlp": st.booleans(),
        "rotary_interleaved": st.booleans(),
    }
)


@given(configs)
@settings(max_examples=12, deadline=None)
@torch.no_grad()
def test_round_trip_through_a_native_bridge(fields):
    if fields["positional"] != "rotary":
        fields = fields | {"rotary_interleaved": False}
    model = scrambled(TransformerConfig(**SIZES, **fields))
    bridge = to_bridge(model)
    # Two float32 implementations; the bound is relative to logits of up to 20.
    torch.testing.assert_close(bridge(TOKENS), model(TOKENS), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(from_bridge(bridge)(TOKENS), model(TOKENS), atol=2e-5, rtol=1e-5)


CANNOT = {
    "parallel": {"parallel": True},
    "qk_normalization": {"qk_normalization": "rms_norm"},
    "attention": {"attention": "window", "attention_options": {"window": 3}},
    "positional": {"positional": "alibi"},
    "attention_scale": {"attention_scale": (0.5, 0.25)},
    "activation": {"activation": "squared_relu"},
}


@pytest.mark.parametrize("field", CANNOT)
def test_what_a_native_bridge_cannot_do_is_refused_by_name(field):
    with pytest.raises(ValueError, match=field):
        to_bridge(scrambled(TransformerConfig(**SIZES | CANNOT[field])))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_bridge_of_a_hugging_face_model_becomes_ours(family, bridges):
    bridge = bridges(family)
    torch.testing.assert_close(from_bridge(bridge)(TOKENS), bridge(TOKENS), atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_bridge_with_processed_weights_is_refused(tmp_path):
    bridge = booted(make("gpt2", attn_implementation="eager"), tmp_path)
    bridge.enable_compatibility_mode()
    with pytest.raises(ValueError, match=r"boot it without|no place|wanted a tensor"):
        from_bridge(bridge)


def test_what_is_no_bridge_is_refused():
    with pytest.raises(TypeError, match="Linear"):
        from_bridge(torch.nn.Linear(2, 2))


# --- wrapped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_wrapped_bridge_shows_its_patterns_and_keeps_its_logits(family, bridges):
    bridge = bridges(family)
    theirs, their_cache = bridge.run_with_cache(TOKENS)
    model = wrap(bridge)
    logits, cache = model.run_with_cache(TOKENS)
    torch.testing.assert_close(logits, theirs, atol=1e-5, rtol=0)
    for layer in range(2):
        pattern = their_cache[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(cache["pattern", layer], pattern, atol=1e-6, rtol=0)
    assert torch.equal(bridge(TOKENS), theirs)  # left as it was


@pytest.mark.parametrize(
    "fields",
    [{}, {"positional": "rotary", "rotary_interleaved": True}, {"score_soft_cap": 3.0}],
)
@torch.no_grad()
def test_probes_give_the_same_on_a_model_and_on_its_bridge(fields):
    ours = scrambled(TransformerConfig(**SIZES, **fields))
    theirs = wrap(to_bridge(ours))
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, 9:] = False
    one, other = (probes.head_statistics(m, TOKENS, mask=mask) for m in (ours, theirs))
    for name in ("entropy", "previous_token", "induction", "sink", "write_norm"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_cutting_a_head_of_a_bridge_is_cutting_its_output_matrix():
    ours = scrambled(TransformerConfig(**SIZES))
    model = wrap(to_bridge(ours))

    def cut(z, hook):
        z[:, :, 2] = 0

    cut_z = model(TOKENS, hooks=[("blocks.0.attn.hook_z", cut)])
    ours.blocks[0].attn.W_O[2] = 0
    torch.testing.assert_close(cut_z, ours(TOKENS), atol=2e-5, rtol=1e-5)
    final = model(TOKENS, stop_at_layer=2)
    assert final.shape == (2, 12, 32)


def test_left_padding_is_refused_by_a_bridge():
    model = wrap(to_bridge(scrambled(TransformerConfig(**SIZES))))
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, 0] = False
    with pytest.raises(ValueError, match="pads on the right"):
        model(TOKENS, mask=mask)


def test_attention_that_is_not_what_q_k_and_v_say_is_refused(tmp_path):
    bloom = of_class("Bloom", vocab_size=40, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(TypeError, match="BloomForCausalLM"):
        wrap(booted(bloom, tmp_path))
