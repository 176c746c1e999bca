"""What a config may say beside sizes: each field acts, or is refused by name."""

import pytest
import torch
from torch.nn import functional as F

from interp import Transformer, TransformerConfig
from interp.hooks import SILENT

SIZES = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 11, "n_ctx": 12, "d_mlp": 24}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def scrambled(**fields):
    """A model without the gains of 1 and biases of 0 that hide faults."""
    model = Transformer(TransformerConfig(**SIZES | fields))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.eval()


ACTING = {
    "post_normalization": "rms_norm",
    "final_normalization": "none",
    "qk_normalization": "rms_norm",
    "parallel": True,
    "attention_scale": (0.1, 0.7),
    "activation": "solu",
    "mlp_normalization": "layer_norm",
}


@pytest.mark.parametrize("field", ACTING)
def test_a_field_changes_what_is_computed(field):
    plain, changed = scrambled(), scrambled(**{field: ACTING[field]})
    weights = {n: x for n, x in plain.state_dict().items() if n in changed.state_dict()}
    changed.load_state_dict(weights, strict=False)
    assert (changed(TOKENS) - plain(TOKENS)).abs().max() > 1e-2


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"post_normalization": "rms_norm", "normalization": "rms_norm"},
        {"qk_normalization": "layer_norm", "positional": "rotary", "n_kv_heads": 2},
        {"final_normalization": "rms_norm_pre"},
        {"bias": ("qkv", "gate"), "gated_mlp": True},
        {"d_vocab_out": 5},
        {"activation": "solu", "mlp_normalization": "layer_norm"},
    ],
)
def test_hooks_that_change_nothing_change_nothing(fields):
    model = scrambled(**fields)
    hooks = [("*", lambda x, hook: x.clone())]
    torch.testing.assert_close(model(TOKENS, hooks=hooks), model(TOKENS), atol=1e-5, rtol=1e-5)
    _, cache = model.run_with_cache(TOKENS)
    for layer in range(2):
        mid = cache["resid_pre", layer] + cache["attn_out", layer]
        torch.testing.assert_close(mid, cache["resid_mid", layer])
        torch.testing.assert_close(mid + cache["mlp_out", layer], cache["resid_post", layer])


def test_parallel_parts_both_read_what_enters_the_block():
    model = scrambled(parallel=True)
    _, cache = model.run_with_cache(TOKENS)
    assert "blocks.0.hook_resid_mid" not in cache
    block, pre = model.blocks[0], cache["resid_pre", 0]
    mlp_out = block.mlp(block.ln2(pre, SILENT), SILENT)
    torch.testing.assert_close(cache["mlp_out", 0], mlp_out)
    total = pre + cache["attn_out", 0] + cache["mlp_out", 0]
    torch.testing.assert_close(total, cache["resid_post", 0])
    stacked, labels = cache.accumulated_resid(incl_mid=True)
    assert len(labels) == len(stacked) == 3


def test_query_norm_is_before_rotation_and_one_gain_for_all_heads():
    model = scrambled(qk_normalization="rms_norm", positional="rotary")
    _, cache = model.run_with_cache(TOKENS)
    attn = model.blocks[0].attn
    assert attn.q_norm.weight.shape == (8,)
    normed = F.rms_norm(cache["q", 0], (8,), attn.q_norm.weight, 1e-5)
    torch.testing.assert_close(cache["rot_q", 0][:, 0], normed[:, 0])  # position 0 turns by 0
    assert (cache["rot_q", 0][:, 1] - normed[:, 1]).abs().max() > 1e-2


def test_biases_stand_where_they_are_named():
    model = Transformer(TransformerConfig(**SIZES, bias=("qkv", "gate"), gated_mlp=True))
    held = {n.split(".", 2)[-1] for n in dict(model.named_parameters()) if n.endswith("bias")}
    assert held == {"attn.qkv.bias", "mlp.gate.bias"}
    plain = Transformer(TransformerConfig(**SIZES, gated_mlp=True))
    assert plain.blocks[0].mlp.gate.bias is None
    assert plain.unembed.bias is not None


def test_logits_of_another_vocabulary_are_not_compared_with_tokens():
    model = scrambled(d_vocab_out=5)
    assert model(TOKENS).shape == (1, 8, 5)
    for call in (lambda: model.loss(TOKENS), lambda: model(TOKENS, return_type="loss")):
        with pytest.raises(ValueError, match="5 classes"):
            call()


def test_linear_scaling_stretches_positions():
    plain = Transformer(TransformerConfig(**SIZES, positional="rotary"))
    scaling = {"kind": "linear", "factor": 2.0}
    wide = Transformer(TransformerConfig(**SIZES, positional="rotary", rotary_scaling=scaling))
    torch.testing.assert_close(wide.position_table[:, ::2], plain.position_table[:, :6])


REFUSED = {
    "post_normalization": {"post_normalization": "layernorm"},
    "parallel": {"parallel": True, "d_mlp": None},
    "attention_scale": {"attention_scale": (1.0,)},
    "bias: 'gate'": {"bias": ("gate",)},
    "bias: there is no 'mpl'": {"bias": ("mpl",)},
    "rotary_scaling needs": {"rotary_scaling": {"kind": "linear", "factor": 2.0}},
    "yarn": {"positional": "rotary", "rotary_scaling": {"kind": "yarn", "factor": 2.0}},
    "takes factor": {"positional": "rotary", "rotary_scaling": {"kind": "linear"}},
    "alibi_slopes needs one a head": {"positional": "alibi", "alibi_slopes": (1.0,)},
    "tied_embeddings": {"tied_embeddings": True, "d_vocab_out": 3},
    "mlp_normalization": {"mlp_normalization": "layer_norm", "gated_mlp": True},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_by_name(message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**SIZES | REFUSED[message])


def test_every_field_survives_a_file(tmp_path):
    import interp
    from interp.checkpoint import load_model, read_config

    config = TransformerConfig(
        **SIZES,
        d_vocab_out=7,
        positional="rotary",
        rotary_scaling={"kind": "linear", "factor": 2.0},
        attention_scale=(0.3, 0.4),
        bias=("o", "norm"),
        post_normalization="rms_norm",
    )
    model = Transformer(config)
    interp.save(model, tmp_path)
    again = TransformerConfig.from_dict(read_config(tmp_path)["model"])
    assert again == config
    assert torch.equal(load_model(again, tmp_path / "model.safetensors")(TOKENS), model(TOKENS))
