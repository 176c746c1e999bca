"""Third-party weights from the shared folder, written into our Transformer."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from interp import Transformer, TransformerConfig


def gbmi_indhead(shared: Path) -> Transformer:
    """A trained two-layer, one-head induction model of 26 letters (TransformerLens's names)."""
    folder = shared / "fixtures" / "gbmi_indhead"
    said = json.loads((folder / "config.json").read_text())
    names = ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "n_ctx")
    model = _blank(**{name: said[name] for name in names}, normalization="none")
    state = load_file(folder / "tl_format.safetensors")
    _write_all(model, state)
    for layer in range(said["n_layers"]):
        _write_all(model.blocks[layer].attn, state, f"blocks.{layer}.attn.")
    return model


def _write_all(part: object, state: dict[str, Tensor], prefix: str = "") -> None:
    """Copy each tensor to the view of the same name, whatever module it stood under."""
    for name, tensor in state.items():
        if name.startswith(prefix) and (prefix or "blocks" not in name):
            getattr(part, name.rsplit(".", 1)[-1]).copy_(tensor)


def tracr(shared: Path, program: str) -> Transformer:
    """A compiled program; its logits are the residual stream that comes out."""
    folder = shared / "fixtures" / f"tracr_{program}"
    said = json.loads((folder / "config.json").read_text())
    state = {k: torch.from_numpy(x) for k, x in np.load(folder / "params.npz").items()}
    model = _blank(
        n_layers=said["num_layers"],
        n_heads=said["num_heads"],
        d_model=said["d_model"],
        d_head=said["key_size"],
        d_mlp=said["mlp_hidden"],
        d_vocab=len(said["input_encoding"]),
        d_vocab_out=said["d_model"],
        n_ctx=state["pos_embed/embeddings"].shape[0],
        normalization="none",
        activation="relu",
        attention="causal" if said["causal"] else "full",
        bos_token=said["input_encoding"]["BOS"],
    )
    model.W_E.copy_(state["token_embed/embeddings"])
    model.W_pos.copy_(state["pos_embed/embeddings"])
    model.W_U.copy_(torch.eye(said["d_model"]))
    for layer, block in enumerate(model.blocks):
        _compiled(block, state, f"transformer/layer_{layer}/")
    return model


def _compiled(block: torch.nn.Module, state: dict[str, Tensor], at: str) -> None:
    """Haiku's names; weights are [in, out], heads beside each other."""
    attn, heads = block.attn, block.attn.n_heads
    for name, weight, bias in (
        ("query", attn.W_Q, attn.b_Q),
        ("key", attn.W_K, attn.b_K),
        ("value", attn.W_V, attn.b_V),
    ):
        weight.copy_(state[f"{at}attn/{name}/w"].unflatten(1, (heads, -1)).transpose(0, 1))
        bias.copy_(state[f"{at}attn/{name}/b"].unflatten(0, (heads, -1)))
    attn.W_O.copy_(state[f"{at}attn/linear/w"].unflatten(0, (heads, -1)))
    attn.b_O.copy_(state[f"{at}attn/linear/b"])
    block.mlp.W_in.copy_(state[f"{at}mlp/linear_1/w"])
    block.mlp.b_in.copy_(state[f"{at}mlp/linear_1/b"])
    block.mlp.W_out.copy_(state[f"{at}mlp/linear_2/w"])
    block.mlp.b_out.copy_(state[f"{at}mlp/linear_2/b"])


def _blank(**sizes: object) -> Transformer:
    """A model of zeros, to be written to."""
    model = Transformer(TransformerConfig(**sizes)).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.fill_(1.0 if "ln" in name and name.endswith("weight") else 0.0)
    return model
