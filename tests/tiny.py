"""Small models and tokens that tests share, scrambled: gains of 1 and biases of 0 hide faults."""

import torch

import interp

KINDS = {
    "attention_only": {},
    "mlp": {"d_mlp": 64},
    "llama": {
        "d_mlp": 64,
        "gated_mlp": True,
        "activation": "silu",
        "normalization": "rms_norm",
        "positional": "rotary",
        "n_kv_heads": 2,
        "bias": False,
    },
    "gptj": {"positional": "rotary", "rotary_dim": 4, "rotary_interleaved": True},
    "alibi_mqa": {"positional": "alibi", "n_kv_heads": 1},
    "shortformer": {"positional": "shortformer"},
    "sinusoidal_pre": {"positional": "sinusoidal", "normalization": "layer_norm_pre"},
    "rms_pre": {"positional": "none", "normalization": "rms_norm_pre"},
    "bare": {"positional": "none", "normalization": "none"},
    "capped_tied": {"score_soft_cap": 5.0, "logit_soft_cap": 3.0, "tied_embeddings": True},
    "window": {
        "attention": ("causal", "window"),
        "attention_options": ({}, {"window": 3}),
    },
    "wide_heads": {"d_head": 12, "attention_scale": 1.0},
}
"""One config of each kind that the model is built in."""


def scramble(model, size=0.1, seed=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(size * torch.randn(weight.shape, generator=generator))
    return model


def tiny(kind="mlp", **changes):
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 20, "n_ctx": 24}
    config = interp.TransformerConfig(**{**sizes, **KINDS[kind], **changes})
    return scramble(interp.Transformer(config)).eval()


def some_tokens(batch=3, length=12, d_vocab=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, d_vocab, (batch, length), generator=generator)
