import json

import pytest

from interp import TransformerConfig
from tests.tiny import KINDS, tiny

SIZES = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 20, "n_ctx": 24}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"n_heads": 0}, "n_heads"),
        ({"n_heads": 3}, "d_model"),
        ({"n_kv_heads": 3}, "n_kv_heads"),
        ({"d_mlp": -1}, "d_mlp"),
        ({"d_model": 32.0}, "d_model"),
        ({"activation": "gleu"}, "activation: there is no 'gleu'; did you mean 'gelu'"),
        ({"gated_mlp": True}, "gated_mlp"),
        ({"positional": "rope"}, "positional"),
        ({"rotary_dim": 4}, "rotary_dim"),
        ({"positional": "rotary", "rotary_dim": 5}, "rotary_dim"),
        ({"positional": "rotary", "rotary_dim": 16}, "rotary_dim"),
        ({"normalization": "batch"}, "normalization"),
        ({"attention": "windw"}, "attention: there is no 'windw'; did you mean 'window'"),
        ({"attention": "window"}, "needs window"),
        ({"attention_options": {"window": 3}}, "'causal' takes no options"),
        ({"attention": "window", "attention_options": {"width": 3}}, "'window' takes window"),
        ({"attention": ("causal",)}, "one entry a layer"),
        ({"dropout": 1.0}, "dropout"),
        ({"bos_token": 20}, "bos_token"),
        ({"score_soft_cap": 0.0}, "score_soft_cap"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(changes, field):
    with pytest.raises(ValueError, match=field):
        TransformerConfig(**{**SIZES, **changes})


def test_positional_arguments_and_unknown_fields_are_refused():
    with pytest.raises(TypeError):
        TransformerConfig(2, 4)
    with pytest.raises(TypeError, match="d_mdoel"):
        TransformerConfig(**SIZES, d_mdoel=3)
    with pytest.raises(ValueError, match="did you mean 'd_model'"):
        TransformerConfig.from_dict({**SIZES, "d_mdoel": 3})


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_survives_json(kind):
    config = tiny(kind).config
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
