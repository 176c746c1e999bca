"""TransformerLens 4's bridges and our models, both ways."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.assembly import assemble
from interp.interop.hugging_face import config_and_recipes
from interp.interop.tensors import Reader, Tensors
from interp.interop.transformer_lens_config import config_from_legacy
from interp.interop.transformer_lens_save import legacy_config
from interp.model import Transformer

TOLERANCE = 1e-4
"""How far two float32 runs of one function may be apart, in logits of the probe."""


def from_bridge(bridge: Any) -> Transformer:
    """Our model for a `TransformerBridge`, native or of a Hugging Face model that we know.

    Before it is handed out, both run on one sequence, and must agree.

    Raises:
        TypeError: It is no bridge.
        ValueError: Its architecture or a field is not supported; or the two do not agree, as when
            its weights were processed (`enable_compatibility_mode`).
    """
    theirs = bridge_parts(bridge)
    where = f"bridge of {type(theirs).__name__}"
    tensors = Tensors(_plain_names(theirs), where)
    if type(theirs).__name__ == "NativeModel":
        config = _native_config(bridge.cfg)
        recipes = _native_recipes(config, tensors)
    else:
        tensors = tensors.without_prefix("transformer.", "gpt_neox.", "model.decoder.", "model.")
        config, recipes = config_and_recipes(theirs.config, tensors)
    model = assemble(config, recipes, where=where, device=bridge.cfg.device)
    model.tokenizer = None
    _check_agreement(model, bridge)
    return model


def bridge_parts(bridge: Any) -> Any:
    """The model that a bridge stands before.

    Raises:
        TypeError: It is no bridge.
    """
    from transformer_lens.model_bridge import TransformerBridge

    if not isinstance(bridge, TransformerBridge):
        raise TypeError(f"wanted a TransformerBridge, got {type(bridge).__name__}")
    return bridge.original_model


def _plain_names(model: Any) -> dict[str, Tensor | Reader]:
    """A bridge's tensors by the names they had before its components came between."""
    return {
        name.replace("._original_component", ""): x
        for name, x in model.state_dict().items()
        if x is not None
    }


def _native_config(theirs: Any) -> TransformerConfig:
    fields = {name: x for name, x in vars(theirs).items() if name in _NATIVE_FIELDS}
    scaling = getattr(theirs, "rope_scaling", None)
    if scaling:
        raise ValueError(f"config: rope_scaling={scaling!r} of a native bridge is not supported")
    if fields.get("act_fn") == "swish":
        fields["act_fn"] = "silu"
    if not fields.get("use_attn_scale", True):  # a native model divides by √d_head all the same
        fields |= {"use_attn_scale": True, "attn_scale": -1.0}
    return config_from_legacy(fields | {"rotary_adjacent_pairs": True})


_NATIVE_FIELDS = (
    "n_layers",
    "n_heads",
    "n_key_value_heads",
    "d_model",
    "d_head",
    "d_mlp",
    "d_vocab",
    "d_vocab_out",
    "n_ctx",
    "eps",
    "act_fn",
    "gated_mlp",
    "attn_only",
    "normalization_type",
    "final_rms",
    "attention_dir",
    "use_attn_scale",
    "attn_scale",
    "attn_scores_soft_cap",
    "output_logits_soft_cap",
    "positional_embedding_type",
    "rotary_dim",
    "rotary_base",
)
"""The fields that a native model acts on; it ignores all others."""


def _native_names(config: TransformerConfig) -> dict[str, str]:
    """Our modules, but for the merged projection of the heads, and theirs."""
    names = {"embed": "tok_embed", "pos_embed": "pos", "ln_final": "ln_out", "unembed": "head"}
    for layer in range(config.n_layers):
        block, theirs = f"blocks.{layer}", f"layers.{layer}"
        up, down = ("in", "out") if config.gated_mlp else ("fc_in", "fc_out")
        names |= {
            f"{block}.ln1": f"{theirs}.ln1",
            f"{block}.ln2": f"{theirs}.ln2",
            f"{block}.attn.o": f"{theirs}.attn.o",
            f"{block}.mlp.up": f"{theirs}.mlp.{up}",
            f"{block}.mlp.gate": f"{theirs}.mlp.gate",
            f"{block}.mlp.down": f"{theirs}.mlp.{down}",
        }
    return names


def _native_recipes(config: TransformerConfig, tensors: Tensors) -> dict[str, Reader]:
    made: dict[str, Reader] = {}
    for ours, theirs in _native_names(config).items():
        made[f"{ours}.weight"] = lambda name=f"{theirs}.weight": tensors.take(name)
        if f"{theirs}.bias" in tensors:
            made[f"{ours}.bias"] = lambda name=f"{theirs}.bias": tensors.take(name)
        else:  # gated MLPs and the unembedding are built without
            made[f"{ours}.bias"] = lambda weight=made[f"{ours}.weight"]: weight()[:, 0] * 0
    for layer in range(config.n_layers):
        attn = f"layers.{layer}.attn"
        for kind in ("weight", "bias"):
            made[f"blocks.{layer}.attn.qkv.{kind}"] = lambda attn=attn, kind=kind: torch.cat(
                [tensors.take(f"{attn}.{part}.{kind}") for part in "qkv"]
            )
    return made


@torch.no_grad()
def _check_agreement(model: Transformer, bridge: Any) -> None:
    tokens = probe_tokens(model.config.d_vocab, model.config.n_ctx, model.W_E.device)
    ours, theirs = model(tokens), bridge(tokens)
    apart = float((ours - theirs).abs().max())
    if not apart < TOLERANCE * max(1.0, float(ours.abs().max())):
        raise ValueError(
            f"the bridge computes something else than its config and weights say: logits are "
            f"{apart:.2g} apart; if its weights were processed, boot it without that"
        )


def probe_tokens(d_vocab: int, n_ctx: int, device: Any) -> Tensor:
    """One short sequence, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, d_vocab, (1, min(n_ctx, 12)), generator=generator).to(device)


@torch.no_grad()
def to_bridge(model: Transformer) -> Any:
    """A native `TransformerBridge` with a copy of the model's weights.

    It is checked on one sequence before it is handed out. A native bridge rotates neighbouring
    coordinates; where the model rotates others, each head's queries and keys are put in that order,
    which changes no score.

    Raises:
        ValueError: The model does what a native bridge can't; the field is named.
    """
    from transformer_lens.model_bridge.sources.native import boot

    config = model.config
    fields = _native_fields(config)
    bridge = boot(fields | {"init_weights": False}, device=model.W_E.device, dtype=model.W_E.dtype)
    state = dict(model.state_dict())
    if config.positional in ("sinusoidal", "none"):  # a table that looks as if it was learned
        rows = model.position_table if config.positional == "sinusoidal" else None
        shape = (config.n_ctx, config.d_model)
        state["pos_embed.weight"] = model.W_E.new_zeros(shape) if rows is None else rows
    _fill_native(bridge.original_model, config, state)
    bridge.eval()
    _check_agreement(model, bridge)
    return bridge


def _native_fields(config: TransformerConfig) -> dict[str, Any]:
    """What `boot_native` takes, for what computes the same.

    Raises:
        ValueError: A field that a native bridge can't follow.
    """
    fields = legacy_config(config)
    lacks = {
        "parallel": config.parallel,
        "post_normalization": config.post_normalization != "none",
        "qk_normalization": config.qk_normalization != "none",
        "mlp_normalization": config.mlp_normalization != "none",
        "attention": fields.get("use_local_attn", False),
        "attention_scale": fields.get("scale_attn_by_inverse_layer_idx", False),
        "positional": fields["positional_embedding_type"] not in ("standard", "rotary"),
        "rotary_scaling": config.rotary_scaling is not None,
        "activation": fields["act_fn"] not in ("gelu", "gelu_new", "relu", "silu", "solu"),
    }
    for name, lacking in lacks.items():
        if lacking:
            raise ValueError(
                f"{name}={getattr(config, name)!r}: a native bridge cannot do this; "
                "interp.save_transformer_lens writes a HookedTransformer checkpoint that may"
            )
    if math.isclose(fields["attn_scale"], config.head_width**0.5):
        fields["attn_scale"] = -1.0
    return fields


def _pairs_beside(config: TransformerConfig, rows: int) -> Tensor:
    """The order of query or key rows in which rotated pairs are neighbours."""
    order = torch.arange(config.head_width)
    if config.positional == "rotary" and not config.rotary_interleaved:
        turned = config.rotary_dim or config.head_width
        order[:turned] = order[:turned].view(2, -1).T.flatten()
    heads = torch.arange(0, rows, config.head_width)
    return (heads[:, None] + order).flatten()


def _fill_native(theirs: Any, config: TransformerConfig, state: Mapping[str, Tensor]) -> None:
    """Write our weights into its modules; biases that it was built without are added."""
    modules = {n.replace("._original_component", ""): m for n, m in theirs.named_modules()}
    for name, weight in theirs.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
    sizes = [n * config.head_width for n in (config.n_heads, config.kv_heads, config.kv_heads)]
    pairs: list[tuple[str, str, Tensor]] = []
    for ours, name in _native_names(config).items():
        kinds = (k for k in ("weight", "bias") if f"{ours}.{k}" in state)
        pairs += [(name, kind, state[f"{ours}.{kind}"]) for kind in kinds]
    for layer in range(config.n_layers):
        for kind in ("weight", "bias"):
            whole = state.get(f"blocks.{layer}.attn.qkv.{kind}")
            if whole is not None:
                for part, x in zip("qkv", whole.split(sizes), strict=True):
                    x = x if part == "v" else x[_pairs_beside(config, len(x))]
                    pairs.append((f"layers.{layer}.attn.{part}", kind, x))
    for name, kind, x in pairs:
        module = modules[name]
        held = getattr(module, kind)
        if held is None:
            module.register_parameter(kind, torch.nn.Parameter(x.clone()))
        else:
            held.data.copy_(x)
