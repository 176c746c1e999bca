"""llm-viz's GPT-nano that sorts six letters, the query and value biases that its file lacks found.

The file has no `c_attn.bias`, though the model has. What the biases do is on record, so they
follow: log-ratios of a row's pattern are linear in a query bias (a key bias drops out of the
softmax), and a value bias adds one vector to what the heads write, which block outputs show.
"""

import json
from base64 import b64decode
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from interp import Transformer
from interp.hooks import SILENT
from interp.interop import load_mingpt


def load_llmviz(shared: Path) -> Transformer:
    """The model in float64; its patterns are right to 1e-7, its logits to 2e-6."""
    folder = shared / "fixtures" / "llmviz_gpt_nano_sort"
    state = {name: x.double() for name, x in load_file(folder / "mingpt.safetensors").items()}
    for layer in range(3):
        state[f"transformer.h.{layer}.attn.c_attn.bias"] = torch.zeros(144, dtype=torch.float64)
    model = load_mingpt(state, n_heads=3).requires_grad_(False)
    reference = np.load(folder / "ref.npz")
    tokens = torch.from_numpy(reference["tokens"])
    partials = read_partials(shared)
    for layer in range(3):
        pattern = torch.from_numpy(reference[f"pattern_L{layer}"]).double()
        _find_query_biases(model, layer, tokens, pattern)
        _find_value_biases(model, layer, partials["idx"].long(), partials[f"block{layer}"])
    return model


def read_partials(shared: Path) -> dict[str, torch.Tensor]:
    """Every intermediate of three sequences, as llm-viz recorded them."""
    path = shared / "fixtures" / "llmviz_gpt_nano_sort" / "gpt-nano-sort-t0-partials.json"
    return {
        name: torch.frombuffer(bytearray(b64decode(x["data"])), dtype=torch.float32)
        .view(x["shape"])
        .double()
        for name, x in json.loads(path.read_text()).items()
        if "shape" in x
    }


def _find_query_biases(model, layer, tokens, pattern):
    attn = model.blocks[layer].attn
    _, cache = model.run_with_cache(tokens, ["*.hook_q", "*.hook_k"])
    q, k = cache["q", layer].transpose(1, 2), cache["k", layer].transpose(1, 2)
    k = k - k[:, :, :1]
    rest = pattern.log() - pattern[..., :1].log() - attn.d_head**-0.5 * (q @ k.mT)
    weighty = (pattern > 1e-3) & (pattern[..., :1] > 1e-3)
    for head in range(3):
        example, row, key = weighty[:, head].nonzero(as_tuple=True)
        slopes = attn.d_head**-0.5 * k[example, head, key]
        found = torch.linalg.lstsq(slopes, rest[example, head, row, key][:, None])
        attn.b_Q[head] = found.solution[:, 0]


def _find_value_biases(model, layer, tokens, after_block):
    block = model.blocks[layer]
    _, cache = model.run_with_cache(tokens, "*.hook_resid_mid")
    mid = cache["resid_mid", layer]

    def miss(shifts):
        moved = mid + shifts[:, None, None]
        written = moved + block.mlp(block.ln2(moved, SILENT), SILENT)
        return (written - after_block).flatten(1)

    shift, step = torch.zeros(1, 48, dtype=torch.float64), 1e-4
    for _ in range(4):  # Gauss–Newton, with central differences
        aside = step * torch.eye(48, dtype=torch.float64)
        slope = (miss(shift + aside) - miss(shift - aside)) / (2 * step)
        shift = shift - torch.linalg.lstsq(slope.T, miss(shift).T).solution.T
    found = torch.linalg.lstsq(block.attn.o.weight, shift.T).solution[:, 0]
    block.attn.b_V[:] = found.view(3, 16)
