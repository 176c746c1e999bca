"""One module for each kind of Hugging Face model: its config and its tensors, in our names."""

from collections.abc import Callable, Mapping
from typing import Any

from interp.config import TransformerConfig
from interp.interop.families import gpt2, llama, neox, opt
from interp.interop.tensors import Reader, Tensors

Family = Callable[[Mapping[str, Any], Tensors], tuple[TransformerConfig, dict[str, Reader]]]
"""Takes the config's plain values and the tensors; gives our config and how to fill it."""

FAMILIES: dict[str, Family] = {
    "gpt2": gpt2.gpt2,
    "gpt_neo": gpt2.gpt_neo,
    "gpt_neox": neox.gpt_neox,
    "phi": neox.phi,
    "opt": opt.opt,
    "llama": llama.llama,
    "mistral": llama.mistral,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "gemma2": llama.gemma2,
}
"""By the `model_type` that a config names."""
