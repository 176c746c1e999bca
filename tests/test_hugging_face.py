"""Hugging Face models into ours: log-probabilities within 1e-4, or refused by the field's name."""

import json

import numpy as np
import pytest
import torch

from interp import load_hugging_face
from tests.hugging_face_models import (
    FAMILIES,
    GPT2,
    GROUPED,
    OPT,
    SIZES,
    make,
    of_class,
    save_with_tokenizer,
)

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]])
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
SLIDING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3}
VARIANTS = {
    **{family: (name, sizes) for family, (name, sizes) in FAMILIES.items()},
    "gpt2 inverse layer": ("GPT2", GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2 unscaled": ("GPT2", GPT2 | {"scale_attn_weights": False}),
    "gpt2 gelu": ("GPT2", GPT2 | {"activation_function": "gelu"}),
    "gpt2 epsilon": ("GPT2", GPT2 | {"layer_norm_epsilon": 1e-3}),
    "gpt2 untied": ("GPT2", GPT2 | {"tie_word_embeddings": False}),
    "gpt_neo": (
        "GPTNeo",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": 40,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
    "neox sequential": ("GPTNeoX", SIZES | {"use_parallel_residual": False}),
    "neox without biases": ("GPTNeoX", SIZES | {"attention_bias": False}),
    "opt without biases": ("OPT", OPT | {"word_embed_proj_dim": 32, "enable_bias": False}),
    "opt without gains": (
        "OPT",
        OPT | {"word_embed_proj_dim": 32, "layer_norm_elementwise_affine": False},
    ),
    "llama biases": ("Llama", GROUPED | {"attention_bias": True, "mlp_bias": True}),
    "llama 3": ("Llama", GROUPED | {"rope_parameters": LLAMA3}),
    "llama linear": (
        "Llama",
        GROUPED | {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}},
    ),
    "llama tied": ("Llama", GROUPED | {"tie_word_embeddings": True}),
    "mistral without window": ("Mistral", GROUPED | {"sliding_window": None}),
    "qwen2 sliding": ("Qwen2", GROUPED | SLIDING | {"use_sliding_window": True}),
    "qwen3 biases": ("Qwen3", GROUPED | {"head_dim": 16, "attention_bias": True}),
    "gemma2 other scale": (
        "Gemma2",
        GROUPED | {"head_dim": 16, "query_pre_attn_scalar": 9, "attn_logit_softcapping": 2.0},
    ),
    "phi norms": ("Phi", SIZES | {"qk_layernorm": True, "partial_rotary_factor": 0.5}),
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_log_probabilities_are_the_models_own(variant):
    name, fields = VARIANTS[variant]
    hf = of_class(name, **fields, attn_implementation="eager")
    model = load_hugging_face(hf)
    ours, theirs = model(TOKENS).log_softmax(-1), hf(TOKENS).logits.log_softmax(-1)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)  # 2e-6 measured
    assert model.config.bos_token == 0
    _, cache = model.run_with_cache(TOKENS)
    for layer in range(2):
        pre, attn, mlp = (cache[part, layer] for part in ("resid_pre", "attn_out", "mlp_out"))
        torch.testing.assert_close(pre + attn + mlp, cache["resid_post", layer])
        if not model.config.parallel:
            torch.testing.assert_close(pre + attn, cache["resid_mid", layer])


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_folder_of_shards_gives_the_same_model(family, tmp_path):
    hf = make(family)
    hf.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    in_memory, read = load_hugging_face(hf), load_hugging_face(tmp_path)
    assert torch.equal(in_memory(TOKENS), read(TOKENS))
    assert read.config == in_memory.config


@torch.no_grad()
def test_dtype_is_that_of_the_file_or_as_asked(tmp_path):
    make("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    assert load_hugging_face(tmp_path).W_E.dtype == torch.bfloat16
    wide = load_hugging_face(tmp_path, dtype=torch.float32)
    assert wide.W_E.dtype == torch.float32
    assert load_hugging_face(tmp_path)(TOKENS).dtype == torch.bfloat16


@torch.no_grad()
def test_padding_and_cache_work_as_in_our_own_models():
    hf = make("opt")  # whose positions start at 2
    model = load_hugging_face(hf)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, :3] = False
    padded = model(TOKENS, mask=mask)[0, 3:]
    torch.testing.assert_close(padded, model(TOKENS[:1, 3:])[0], atol=1e-5, rtol=0)
    cache = model.new_kv_cache()
    chunks = [model(TOKENS[:, :5], kv_cache=cache), model(TOKENS[:, 5:], kv_cache=cache)]
    torch.testing.assert_close(torch.cat(chunks, 1), model(TOKENS), atol=1e-5, rtol=0)


@torch.no_grad()
def test_stories_continue_from_the_hugging_face_folder(shared):
    folder = shared / "fixtures" / "stories260K"
    model = load_hugging_face(folder / "hf")
    tokens = torch.from_numpy(np.load(folder / "ref.npz")["tokens"])
    assert torch.equal(model.generate(tokens[:, :1], 200), tokens)
    assert model.tokenizer is None


REFUSED = {
    "rope_type='yarn'": (
        "Llama",
        GROUPED
        | {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 2.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "do_layer_norm_before=False": (
        "OPT",
        OPT | {"word_embed_proj_dim": 32, "do_layer_norm_before": False},
    ),
    "word_embed_proj_dim=16": ("OPT", OPT | {"word_embed_proj_dim": 16}),
    "add_cross_attention=True": ("GPT2", GPT2 | {"add_cross_attention": True}),
    "activation_function='mish'": ("GPT2", GPT2 | {"activation_function": "mish"}),
    "type 'bloom' are not supported": ("Bloom", {"hidden_size": 32, "n_layer": 1, "n_head": 4}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_we_lack_is_refused_by_name(message):
    name, fields = REFUSED[message]
    with pytest.raises(ValueError, match=message):
        load_hugging_face(of_class(name, **fields))


def test_wrong_tensors_are_named(tmp_path):
    make("llama").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for change, message in (
        ({"num_hidden_layers": 1}, r"no place for layers\.1"),
        ({"num_hidden_layers": 3}, r"wanted a tensor 'layers\.2"),
        ({"vocab_size": 41}, r"embed\.weight came out as \[40, 32\]"),
    ):
        path.write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message) as error:
            load_hugging_face(tmp_path)
        assert "\n" not in str(error.value)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_hugging_face(tmp_path)


def test_a_name_without_network_fails_in_one_line():
    with pytest.raises(FileNotFoundError, match="nobody/nothing-here: no such folder") as error:
        load_hugging_face("nobody/nothing-here")
    assert "\n" not in str(error.value)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        load_hugging_face(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="not a config that is known"):
        load_hugging_face(tmp_path)


# --- strings ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speaking(tmp_path_factory):
    """A model with a tokenizer of words beside its weights."""
    folder = tmp_path_factory.mktemp("speaking")
    save_with_tokenizer(make("llama"), folder)
    return load_hugging_face(folder)


def test_strings_become_tokens_and_bos_only_when_asked(speaking):
    assert speaking.to_tokens("once upon a time").tolist() == [[2, 3, 4, 5]]
    assert speaking.to_tokens("once", prepend_bos=True).tolist() == [[0, 2]]
    assert speaking.to_tokens(["a time", "upon a"]).tolist() == [[4, 5], [3, 4]]
    assert speaking.to_str_tokens("once upon a") == ["once", "upon", "a"]
    assert speaking.to_str_tokens(torch.tensor([[0, 7]])) == ["<s>", "lily"]
    assert speaking(speaking.to_tokens("once upon")).shape == (1, 2, 40)


def test_texts_that_make_no_batch_are_refused(speaking):
    with pytest.raises(ValueError, match="2, 1 tokens"):
        speaking.to_tokens(["a time", "a"])


def test_a_model_without_a_tokenizer_says_so():
    with pytest.raises(ValueError, match=r"model\.tokenizer"):
        load_hugging_face(make("llama")).to_tokens("once")


# --- folding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_folding_an_import_changes_nothing_and_leaves_it_alone(family):
    from interp import fold_layer_norm

    model = load_hugging_face(make(family))
    before = {name: x.clone() for name, x in model.state_dict().items()}
    logits = model(TOKENS)
    folded = fold_layer_norm(model)
    torch.testing.assert_close(folded(TOKENS), logits, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(model(TOKENS), logits)
