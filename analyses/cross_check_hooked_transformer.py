"""Does a HookedTransformer of TransformerLens 3 load what interp writes, and compute the same?

Question: Versions 3 and 4 of TransformerLens can't share an environment, so that the tests compare
    keys and shapes with fixtures only. Does version 3 itself load the files, strictly?
Method: Scrambled models of 33 kinds, written by `save_transformer_lens`, loaded by
    `HookedTransformer.load_state_dict(strict=True)`; logits, all activations that both name alike,
    and the way back through `load_transformer_lens` with `cfg.to_dict()`.
Finding: TransformerLens 3.9.0 loads all 33 and agrees: logits within 1.2e-6 and activations within
    5.7e-6 of the largest entry; what comes back is bit-equal.
Run: in an environment with transformer-lens 3.9 beside interp,
    python analyses/cross_check_hooked_transformer.py OUT
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import interp
from interp.interop.transformer_lens_save import legacy_config, legacy_state
from interp.results import plain, write_atomic

SIZES = {"n_layers": 3, "n_heads": 4, "d_model": 32, "d_vocab": 20, "n_ctx": 16, "d_mlp": 48}
LLAMA3 = {
    "kind": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_n_ctx": 8,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rms_norm": {"normalization": "rms_norm"},
    "rms_norm_pre": {"normalization": "rms_norm_pre"},
    "layer_norm_pre": {"normalization": "layer_norm_pre"},
    "no norm": {"normalization": "none"},
    "rotary by neighbours": {"positional": "rotary", "rotary_dim": 4, "rotary_interleaved": True},
    "rotary by halves": {"positional": "rotary", "rotary_dim": 4},
    "rotary linear": {"positional": "rotary", "rotary_scaling": {"kind": "linear", "factor": 3.0}},
    "rotary llama3": {"positional": "rotary", "rotary_base": 100.0, "rotary_scaling": LLAMA3},
    "alibi": {"positional": "alibi"},
    "shortformer": {"positional": "shortformer"},
    "sinusoidal": {"positional": "sinusoidal"},
    "no positions": {"positional": "none"},
    "window": {
        "attention": ("causal", "window", "window"),
        "attention_options": ({}, {"window": 3}, {"window": 3}),
    },
    "full": {"attention": "full"},
    "parallel": {"parallel": True},
    "scores / layer": {"attention_scale": (0.5, 0.25, 0.5 / 3)},
    "sandwich": {"normalization": "rms_norm", "post_normalization": "rms_norm"},
    "query norm": {"qk_normalization": "rms_norm"},
    "query norm, grouped": {
        "qk_normalization": "rms_norm",
        "n_kv_heads": 2,
        "positional": "rotary",
    },
    "final rms": {"final_normalization": "rms_norm"},
    "final rms_pre": {
        "normalization": "layer_norm_pre",
        "final_normalization": "rms_norm_pre",
    },
    "solu": {"activation": "solu"},
    "solu_ln": {"activation": "solu", "mlp_normalization": "layer_norm"},
    "solu_ln, folded": {
        "activation": "solu",
        "normalization": "layer_norm_pre",
        "mlp_normalization": "layer_norm_pre",
    },
    "squared relu": {"activation": "squared_relu"},
    "tanh gelu": {"activation": "gelu_tanh"},
    "soft caps": {"score_soft_cap": 3.0, "logit_soft_cap": 5.0},
    "other logits": {"d_vocab_out": 7},
    "tied": {"tied_embeddings": True},
    "no biases": {"bias": False},
    "attention only": {"d_mlp": None},
    "gated": {
        "gated_mlp": True,
        "activation": "silu",
        "bias": ("qkv", "o", "norm", "unembed"),
    },
}


def main(out: Annotated[Path, typer.Argument(file_okay=False)]) -> None:
    """Write cross_check_hooked_transformer.json to a folder."""
    found = {name: compared(interp.TransformerConfig(**SIZES | KINDS[name])) for name in KINDS}
    about = {"transformer_lens": version("transformer-lens"), "torch": torch.__version__}
    worst = {key: max(row[key] for row in found.values()) for key in found["plain"]}
    path = out / "cross_check_hooked_transformer.json"
    numbers = {"versions": about, "worst": worst, "kinds": found}
    write_atomic(path, json.dumps(plain(numbers), indent=1) + "\n")


@torch.no_grad()
def compared(config: interp.TransformerConfig) -> dict[str, float]:
    """The largest difference of logits, of activations, and of logits on the way back."""
    from transformer_lens import (  # pyright: ignore[reportAttributeAccessIssue]
        HookedTransformer,
        HookedTransformerConfig,
    )

    model = scrambled(config)
    said = legacy_config(config) | {"device": "cpu"}
    theirs = HookedTransformer(HookedTransformerConfig.from_dict(said)).eval()
    theirs.load_state_dict(legacy_state(model), strict=True)
    tokens = torch.tensor([[1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 1, 2]])
    logits, cache = model.run_with_cache(tokens)
    their_logits, their_cache = theirs.run_with_cache(tokens)
    shared = [name for name in cache if name in their_cache and "scores" not in name]
    shared = [name for name in shared if "_norm.hook" not in name]  # heads flattened there
    back = interp.load_transformer_lens(theirs.state_dict(), theirs.cfg.to_dict())
    return {
        "logits": apart(logits, their_logits),
        "activations": max(apart(cache[name], their_cache[name]) for name in shared),
        "back": apart(logits, back(tokens)),
    }


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest entry where that is above 1."""
    return float((a - b).abs().max()) / max(1.0, float(b.abs().max()))


def scrambled(config: interp.TransformerConfig) -> interp.Transformer:
    """A model without the gains of 1 and biases of 0 that hide faults."""
    model, draw = interp.Transformer(config), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=draw))
    return model.eval()


if __name__ == "__main__":
    typer.run(main)
