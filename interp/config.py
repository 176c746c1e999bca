"""What a model computes: the one description that is saved beside its weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from interp.attention import MASKS, Rule

Positional = Literal["learned", "sinusoidal", "rotary", "alibi", "shortformer", "none"]
Normalization = Literal["layer_norm", "layer_norm_pre", "rms_norm", "rms_norm_pre", "none"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes and kinds of a decoder-only transformer. It refuses what the model can't do.

    Attributes:
        n_layers: Number of blocks.
        n_heads: Query heads a layer.
        d_model: Width of the residual stream.
        d_vocab: Number of tokens.
        n_ctx: Longest sequence, cached tokens included.
        n_kv_heads: Key/value heads; they divide `n_heads`. None: as many. Source: Ainslie et al.
            2023, "GQA"; 1 is multi-query attention (Shazeer 2019).
        d_head: Width of a head. None: d_model / n_heads.
        d_mlp: Hidden width of the MLPs. None: attention-only.
        activation: The MLP's nonlinearity, one of `ACTIVATIONS`.
        gated_mlp: act(x W_gate) · (x W_in) in place of act(x W_in). Source: Shazeer 2020.
        positional: How positions come in: added to the residual stream (`learned`, `sinusoidal`),
            to the inputs of queries and keys (`shortformer`), by rotating them (`rotary`), by a
            bias on scores (`alibi`), or not at all.
        rotary_dim: How many coordinates of a head are rotated. None: all.
        rotary_base: Base of the rotations' wavelengths.
        rotary_interleaved: Pairs are (2i, 2i+1), not (i, i + rotary_dim/2).
        normalization: Before each part; the `_pre` forms have no gain and no bias.
        norm_eps: Added to the variance.
        attention: What a token may see, one of `interp.attention.MASKS`; a tuple gives one a layer.
        attention_options: Options of that kind; with a tuple of kinds, a tuple of such dicts.
        attention_scale: What q·k is multiplied with. None: 1/√d_head.
        score_soft_cap: Scores become cap·tanh(score/cap). None: as they are.
        logit_soft_cap: Likewise for the logits.
        bias: Whether the matrices and LayerNorms have additive biases.
        tied_embeddings: The unembedding is the embedding, transposed.
        dropout: Chance of zeroing, in training mode, an entry of the embedding and of each part's
            output.
        bos_token: The token that starts sequences; its rows are left out of head scores.
        init_seed: Seed of the initial weights.
        init_scale: Standard deviation of initial weights times √d_model.
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_vocab: int
    n_ctx: int
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_mlp: int | None = None
    activation: str = "gelu"
    gated_mlp: bool = False
    positional: Positional = "learned"
    rotary_dim: int | None = None
    rotary_base: float = 10_000.0
    rotary_interleaved: bool = False
    normalization: Normalization = "layer_norm"
    norm_eps: float = 1e-5
    attention: str | tuple[str, ...] = "causal"
    attention_options: Mapping[str, Any] | tuple[Mapping[str, Any], ...] = field(
        default_factory=dict
    )
    attention_scale: float | None = None
    score_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    bias: bool = True
    tied_embeddings: bool = False
    dropout: float = 0.0
    bos_token: int | None = None
    init_seed: int = 0
    init_scale: float = 0.8

    def __post_init__(self) -> None:
        """Refuse what the model can't do, naming the field."""
        _check_sizes(self)
        _check_choices(self)
        _check_combinations(self)
        for layer in range(self.n_layers):
            self.rule(layer)

    @property
    def head_width(self) -> int:
        """`d_head`, filled in."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """`n_kv_heads`, filled in."""
        return self.n_kv_heads if self.n_kv_heads is not None else self.n_heads

    @property
    def scale(self) -> float:
        """`attention_scale`, filled in."""
        return self.head_width**-0.5 if self.attention_scale is None else self.attention_scale

    def attention_of(self, layer: int) -> tuple[str, dict[str, Any]]:
        """A layer's kind of attention, and its options."""
        kind = self.attention if isinstance(self.attention, str) else self.attention[layer]
        options = self.attention_options
        return kind, dict(options[layer] if isinstance(options, tuple) else options)

    def rule(self, layer: int) -> Rule:
        """What a token of this layer may see.

        Raises:
            ValueError: The kind is unknown, or does not take these options.
        """
        kind, options = self.attention_of(layer)
        if kind not in MASKS:
            raise ValueError(_no_such("attention", kind, MASKS))
        known = [f.name for f in fields(MASKS[kind])]
        for name in options:
            if name not in known:
                takes = ", ".join(known) or "no options"
                raise ValueError(f"attention_options: {kind!r} takes {takes}, got {name!r}")
        missing = [name for name in known if name not in options]
        try:
            return MASKS[kind](**options)
        except TypeError as error:
            raise ValueError(
                f"attention_options: {kind!r} needs {', '.join(missing)}, got {options}"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TransformerConfig":
        """Build from what `to_dict` gave, lists standing for tuples.

        Raises:
            ValueError: A name is no field.
        """
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(_no_such("TransformerConfig", name, known))
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**plain)


def _no_such(what: str, got: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(str(got), list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{what}: there is no {got!r}{hint} (it may be {', '.join(known)})"


def _check_sizes(config: TransformerConfig) -> None:
    names = ("n_layers", "n_heads", "d_model", "d_vocab", "n_ctx", "n_kv_heads", "d_head", "d_mlp")
    for name in (*names, "rotary_dim"):
        value = getattr(config, name)
        least = 0 if name == "n_layers" else 1
        optional = name in ("n_kv_heads", "d_head", "d_mlp", "rotary_dim")
        if value is None and optional:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    for name in ("norm_eps", "rotary_base", "score_soft_cap", "logit_soft_cap", "attention_scale"):
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, got {value!r}")
    if not 0 <= config.dropout < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {config.dropout!r}")
    if config.bos_token is not None and not 0 <= config.bos_token < config.d_vocab:
        raise ValueError(f"bos_token must lie in [0, {config.d_vocab}), got {config.bos_token!r}")


def _check_choices(config: TransformerConfig) -> None:
    choices = {
        "positional": get_args(Positional),
        "normalization": get_args(Normalization),
        "activation": tuple(ACTIVATIONS),
    }
    for name, known in choices.items():
        if getattr(config, name) not in known:
            raise ValueError(_no_such(name, getattr(config, name), known))
    for name in ("attention", "attention_options"):
        value = getattr(config, name)
        if isinstance(value, tuple) and len(value) != config.n_layers:
            raise ValueError(
                f"{name} needs one entry a layer ({config.n_layers}), got {len(value)}"
            )


def _check_combinations(config: TransformerConfig) -> None:
    if config.d_head is None and config.d_model % config.n_heads:
        raise ValueError(
            f"d_model ({config.d_model}) must be a multiple of n_heads ({config.n_heads}), "
            "or d_head be given"
        )
    if config.n_heads % config.kv_heads:
        raise ValueError(f"n_kv_heads ({config.kv_heads}) must divide n_heads ({config.n_heads})")
    if config.gated_mlp and config.d_mlp is None:
        raise ValueError("gated_mlp needs an MLP: give d_mlp, or leave it False")
    if config.positional == "rotary":
        turned = config.rotary_dim or config.head_width
        if turned % 2 or turned > config.head_width:
            raise ValueError(
                f"rotary_dim must be even and at most d_head ({config.head_width}), got {turned}"
            )
    elif config.rotary_dim is not None or config.rotary_interleaved:
        raise ValueError(
            f"rotary_dim and rotary_interleaved need positional='rotary', got {config.positional!r}"
        )


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
"""Nonlinearities by the name that `TransformerConfig.activation` takes."""
