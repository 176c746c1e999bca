"""What the families share: activations, rotations, refusals, and recipes by name."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from interp.interop.tensors import Reader, Tensors

Values = Mapping[str, Any]

ACTIVATION_OF = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "squared_relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def activation(values: Values, field: str) -> str:
    """Our name of the activation that a field names.

    Raises:
        ValueError: We have none such.
    """
    name = values[field]
    if name not in ACTIVATION_OF:
        raise ValueError(f"config: {field}={name!r} is not supported ({', '.join(ACTIVATION_OF)})")
    return ACTIVATION_OF[name]


def refuse(values: Values, **wanted: Any) -> None:
    """Raise where a field is not what we can do; one that is absent is fine.

    Raises:
        ValueError: The field is named.
    """
    for name, value in wanted.items():
        if name in values and values[name] != value:
            raise ValueError(f"config: {name}={values[name]!r} is not supported, only {value!r}")


def rotary(values: Values, d_head: int) -> dict[str, Any]:
    """Our fields for rotated positions.

    Raises:
        ValueError: The rotations are scaled in a way that we do not have.
    """
    rope = dict(values.get("rope_parameters") or values.get("rope_scaling") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    share = rope.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
    fields: dict[str, Any] = {
        "positional": "rotary",
        "rotary_base": float(rope.get("rope_theta", values.get("rope_theta", 10_000.0))),
        "rotary_dim": int(d_head * (1.0 if share is None else share)),
    }
    if kind == "linear":
        fields["rotary_scaling"] = {"kind": "linear", "factor": float(rope["factor"])}
    elif kind == "llama3":
        fields["rotary_scaling"] = {
            "kind": "llama3",
            "factor": float(rope["factor"]),
            "low_freq_factor": float(rope["low_freq_factor"]),
            "high_freq_factor": float(rope["high_freq_factor"]),
            "original_n_ctx": rope["original_max_position_embeddings"],
        }
    elif kind != "default":
        raise ValueError(
            f"config: rope_parameters of rope_type={kind!r} are not supported (default, linear, "
            "llama3)"
        )
    return fields


def kinds_by_layer(values: Values, n_layers: int) -> dict[str, Any]:
    """Our fields for layers that see everything, or a window."""
    window = values.get("sliding_window")
    kinds = values.get("layer_types")
    if kinds is None:
        kinds = [("full" if window is None else "sliding") + "_attention"] * n_layers
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(f"config: layer_types {sorted(unknown)} are not supported")
    slides = [kind == "sliding_attention" for kind in kinds]
    if not any(slides):
        return {"attention": "causal"}
    return {
        "attention": tuple("window" if here else "causal" for here in slides),
        "attention_options": tuple({"window": window} if here else {} for here in slides),
    }


def recipes_by_name(
    tensors: Tensors,
    names: Mapping[str, str | tuple[str, ...]],
    *,
    transposed: Iterable[str] = (),
    kinds: tuple[str, ...] = ("weight", "bias"),
) -> dict[str, Reader]:
    """Recipes that copy tensors, or put those of several names on top of each other.

    Args:
        tensors: Theirs.
        names: Our module's name, to theirs.
        transposed: Last parts of our names whose weights are stored the other way around.
        kinds: Which tensors a module has.
    """
    turned = set(transposed)
    made: dict[str, Reader] = {}
    for ours, theirs in names.items():
        several = (theirs,) if isinstance(theirs, str) else theirs
        for kind in kinds:
            turn = kind == "weight" and ours.rpartition(".")[2] in turned
            made[f"{ours}.{kind}"] = _reader(tensors, [f"{n}.{kind}" for n in several], turn)
    return made


def _reader(tensors: Tensors, names: list[str], turn: bool) -> Reader:
    def read() -> Tensor:
        found = [tensors.take(name) for name in names]
        whole = found[0] if len(found) == 1 else torch.cat(found)
        return whole.T if turn else whole

    return read
