"""HookedTransformer checkpoints: reproduced to 1e-4, or refused by naming the field."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import TransformerConfig, load_transformer_lens, save_transformer_lens
from interp.interop.transformer_lens_config import config_from_legacy
from interp.interop.transformer_lens_save import legacy_config, legacy_state
from tests.scrambled import scrambled

FIXTURES = (
    "attention_only gated_mlp grouped_query layer_norm_pre local_attention no_norm rms_norm "
    "rotary shortformer soft_cap standard"
)
PLAIN = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_ctx": 6, "d_vocab": 5, "act_fn": "gelu"}


@pytest.mark.parametrize("name", FIXTURES.split())
def test_legacy_checkpoint_computes_what_it_computed(shared, name):
    folder = shared / "fixtures" / "tl_legacy" / name
    reference = np.load(folder / "ref.npz")
    model = load_transformer_lens(folder / "model.pt")
    logits = model(torch.from_numpy(reference["tokens"]))
    # Two float32 implementations of one function: 2e-6 measured.
    torch.testing.assert_close(logits, torch.from_numpy(reference["logits"]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", FIXTURES.split())
def test_written_checkpoint_has_the_keys_shapes_and_values_of_the_original(shared, name):
    folder = shared / "fixtures" / "tl_legacy" / name
    original = torch.load(folder / "model.pt", weights_only=True)
    written = legacy_state(load_transformer_lens(folder / "model.pt"))
    assert {k: (x.shape, x.dtype) for k, x in written.items()} == {
        k: (x.shape, x.dtype) for k, x in original.items()
    }
    # b_in of a gated MLP has moved into b_out; the tables of rotations were made in float32.
    moved = ("mlp.b_in", "mlp.b_out") if name == "gated_mlp" else ()
    for key, x in original.items():
        if not key.endswith(moved or ("nothing",)):
            torch.testing.assert_close(written[key], x, atol=1e-5, rtol=0)


def test_gbmi_checkpoint_without_buffers(shared):
    folder = shared / "fixtures" / "gbmi_indhead"
    reference = np.load(folder / "ref.npz")
    model = load_transformer_lens(folder / "tl_format.safetensors")
    tokens = torch.from_numpy(reference["tokens"])
    logits, cache = model.run_with_cache(tokens)
    wanted = torch.from_numpy(reference["logits_f64"]).float()
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=0)
    for layer in range(2):
        pattern = torch.from_numpy(reference[f"pattern_L{layer}"])
        torch.testing.assert_close(cache["pattern", layer], pattern, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name in FIXTURES.split() if name != "shortformer"])
def test_folded_checkpoint_survives_the_way_back(shared, name):
    from interp import fold_layer_norm

    folder = shared / "fixtures" / "tl_legacy" / name
    model = load_transformer_lens(folder / "model.pt")
    folded = fold_layer_norm(model)
    tokens = torch.from_numpy(np.load(folder / "ref.npz")["tokens"])
    torch.testing.assert_close(folded(tokens), model(tokens), atol=1e-5, rtol=1e-5)
    if name == "gated_mlp":  # a LayerNorm's bias ends up inside the product
        with pytest.raises(ValueError, match="mlp"):
            legacy_state(folded)
        return
    again = load_transformer_lens(legacy_state(folded), legacy_config(folded.config))
    torch.testing.assert_close(again(tokens), model(tokens), atol=1e-5, rtol=1e-5)


configs = st.fixed_dictionaries(
    {
        "n_kv_heads": st.sampled_from([None, 1, 2]),
        "d_mlp": st.sampled_from([None, 12]),
        "activation": st.sampled_from(["gelu", "gelu_tanh", "relu", "silu", "solu"]),
        "positional": st.sampled_from(
            ["learned", "sinusoidal", "rotary", "alibi", "shortformer", "none"]
        ),
        "normalization": st.sampled_from(
            ["layer_norm", "layer_norm_pre", "rms_norm", "rms_norm_pre", "none"]
        ),
        "attention": st.sampled_from(["causal", ("causal", "window"), ("window", "window")]),
        "attention_scale": st.sampled_from([None, 1.0, (0.5, 0.25)]),
        "score_soft_cap": st.sampled_from([None, 3.0]),
        "logit_soft_cap": st.sampled_from([None, 5.0]),
        "qk_normalization": st.sampled_from(["none", "rms_norm"]),
        "bias": st.sampled_from([True, False, ("qkv", "norm")]),
        "tied_embeddings": st.booleans(),
        "parallel": st.booleans(),
        "rotary_interleaved": st.booleans(),
        "gated_mlp": st.booleans(),
    }
)


def sound(fields):
    """A config out of drawn fields, those that belong to an absent part left out."""
    fields = dict(fields)
    if fields["positional"] != "rotary":
        del fields["rotary_interleaved"]
    if fields["d_mlp"] is None:
        del fields["parallel"], fields["gated_mlp"]
    kinds = fields["attention"]
    if isinstance(kinds, tuple):
        fields["attention_options"] = tuple({"window": 3} if k == "window" else {} for k in kinds)
    return TransformerConfig(n_layers=2, n_heads=4, d_model=16, d_vocab=9, n_ctx=8, **fields)


@given(configs)
@settings(max_examples=40, deadline=None)
def test_round_trip_computes_the_same(fields):
    model = scrambled(sound(fields))
    if model.config.gated_mlp:
        for block in model.blocks:
            block.mlp.b_in.zero_()  # what a HookedTransformer has no place for
    again = load_transformer_lens(legacy_state(model), legacy_config(model.config))
    tokens = torch.tensor([[1, 2, 3, 1, 2, 3, 8]])
    torch.testing.assert_close(again(tokens), model(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["layer_norm", "layer_norm_pre"])
@torch.no_grad()
def test_solu_with_its_norm(kind):
    fields = {"activation": "solu", "normalization": kind, "mlp_normalization": kind, "d_mlp": 12}
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 16, "d_vocab": 9, "n_ctx": 8}
    model = scrambled(TransformerConfig(**sizes, **fields))
    config = legacy_config(model.config)
    assert config["act_fn"] == "solu_ln"
    tokens = torch.tensor([[1, 2, 3, 1, 2, 3, 8]])
    again = load_transformer_lens(legacy_state(model), config)
    torch.testing.assert_close(again(tokens), model(tokens))
    _, cache = model.run_with_cache(tokens)
    mid, post = cache["mid", 0], cache["post", 0]
    torch.testing.assert_close(mid, cache["pre", 0] * cache["pre", 0].softmax(-1))
    normed = torch.nn.functional.layer_norm(mid, (12,))
    gain = 1 if kind.endswith("pre") else model.blocks[0].mlp.ln.weight
    shift = 0 if kind.endswith("pre") else model.blocks[0].mlp.ln.bias
    torch.testing.assert_close(post, normed * gain + shift)


def test_files_round_trip_with_the_config_beside_them(tmp_path):
    model = scrambled(TransformerConfig(n_layers=2, n_heads=2, d_model=8, d_vocab=5, n_ctx=6))
    path = save_transformer_lens(model, tmp_path / "old.pt", full_masks=True)
    assert torch.load(path, weights_only=True)["blocks.0.attn.mask"].shape == (6, 6)
    tokens = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(load_transformer_lens(path)(tokens), model(tokens))


FIELDS_WE_LACK = {
    "post_embedding_ln": True,
    "num_experts": 4,
    "use_yarn_rope": True,
    "clip_qkv": 8.0,
    "use_attention_sinks": True,
    "act_fn": "xielu",
    "positional_embedding_type": "relative_positional_bias",
    "normalization_type": "BN",
    "rotary_base_local": 10_000,
    "original_architecture": "Olmo2ForCausalLM",
    "use_normalization_before_and_after": True,
    "gated_mpl": True,
}


@pytest.mark.parametrize("field", FIELDS_WE_LACK)
def test_a_field_that_we_lack_is_refused_by_name(field):
    with pytest.raises(ValueError, match=field):
        config_from_legacy(PLAIN | {field: FIELDS_WE_LACK[field]})


def test_runtime_switches_change_nothing():
    switches = {"use_attn_result": True, "seed": 3, "device": "cuda", "n_params": 7}
    assert config_from_legacy(PLAIN | switches) == config_from_legacy(PLAIN)


CANNOT_WRITE = {
    "positional": {"positional": "alibi", "attention": "full"},
    "alibi_slopes": {"positional": "alibi", "n_heads": 3, "d_head": 4},
    "attention_scale": {"attention_scale": (1.0, 3.0)},
    "final_normalization": {"final_normalization": "none"},
    "activation": {"activation": "tanh", "d_mlp": 4},
    "post_normalization": {"post_normalization": "layer_norm"},
    "mlp_normalization": {"mlp_normalization": "layer_norm", "d_mlp": 4},
    "smeared_keys": {"smeared_keys": True},
    "sink_logits": {"sink_logits": True},
}


@pytest.mark.parametrize("field", CANNOT_WRITE)
def test_what_a_hooked_transformer_cannot_do_is_not_written(field):
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 8, "d_vocab": 5, "n_ctx": 6}
    with pytest.raises(ValueError, match=field):
        legacy_config(TransformerConfig(**sizes | CANNOT_WRITE[field]))


def test_biases_inside_a_gated_product_are_not_written():
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_vocab": 5, "n_ctx": 6, "d_mlp": 4}
    model = scrambled(TransformerConfig(**sizes, gated_mlp=True))
    with pytest.raises(ValueError, match=r"blocks\.0\.mlp\.b_in"):
        legacy_state(model)
