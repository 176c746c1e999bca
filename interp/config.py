"""What a model computes: the one description that is saved beside its weights."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from interp.attention import MASKS, Rule
from interp.checks import (
    BIASES,
    Normalization,
    Positional,
    check_biases,
    check_choices,
    check_combinations,
    check_positions,
    check_rule,
    check_sizes,
    no_such,
)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes and kinds of a decoder-only transformer. It refuses what the model can't do.

    Attributes:
        n_layers: Number of blocks.
        n_heads: Query heads a layer.
        d_model: Width of the residual stream.
        d_vocab: Number of tokens.
        d_vocab_out: Number of logits. None: d_vocab.
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
        rotary_scaling: {"kind": "linear", "factor"}, or {"kind": "llama3", "factor",
            "low_freq_factor", "high_freq_factor", "original_n_ctx"}: wavelengths stretched for
            longer contexts. None: as they are.
        rotary_interleaved: Pairs are (2i, 2i+1), not (i, i + rotary_dim/2).
        alibi_slopes: One a head. None: those of Press et al. 2022.
        normalization: Before each part; the `_pre` forms have no gain and no bias.
        post_normalization: After each part, before its output is added (Gemma 2's "sandwich").
        final_normalization: Before the unembedding. None: as before each part.
        qk_normalization: Of each head's queries and keys, before rotation; one gain for all heads.
            Source: Henry et al. 2020.
        mlp_normalization: Of the MLPs' activations, before W_out. Source: Elhage et al. 2022,
            "Softmax Linear Units".
        norm_eps: Added to the variance.
        parallel: Attention and MLP both read what enters the block.
        attention: What a token may see, one of `interp.attention.MASKS`; a tuple gives one a layer.
        attention_options: Options of that kind; with a tuple of kinds, a tuple of such dicts.
        attention_scale: What q·k is multiplied with; a tuple has one a layer. None: 1/√d_head.
        score_soft_cap: Scores become cap·tanh(score/cap). None: as they are.
        logit_soft_cap: Likewise for the logits.
        smeared_keys: Each key is mixed with the previous token's, by a trained share a head;
            `hook_k` is before it. Source: Olsson et al. 2022.
        sink_logits: A trained number a head competes with the scores, so that a head may attend to
            nothing: rows of the pattern sum to less than 1. It takes no fused kernel.
        bias: Whether there are additive biases: all of `BIASES` but "gate", none, or those of the
            parts that a tuple names.
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
    d_vocab_out: int | None = None
    n_kv_heads: int | None = None
    d_head: int | None = None
    d_mlp: int | None = None
    activation: str = "gelu"
    gated_mlp: bool = False
    positional: Positional = "learned"
    rotary_dim: int | None = None
    rotary_base: float = 10_000.0
    rotary_scaling: Mapping[str, Any] | None = None
    rotary_interleaved: bool = False
    alibi_slopes: tuple[float, ...] | None = None
    normalization: Normalization = "layer_norm"
    post_normalization: Normalization = "none"
    final_normalization: Normalization | None = None
    qk_normalization: Normalization = "none"
    mlp_normalization: Normalization = "none"
    norm_eps: float = 1e-5
    parallel: bool = False
    attention: str | tuple[str, ...] = "causal"
    attention_options: Mapping[str, Any] | tuple[Mapping[str, Any], ...] = field(
        default_factory=dict
    )
    attention_scale: float | tuple[float, ...] | None = None
    score_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    smeared_keys: bool = False
    sink_logits: bool = False
    bias: bool | tuple[str, ...] = True
    tied_embeddings: bool = False
    dropout: float = 0.0
    bos_token: int | None = None
    init_seed: int = 0
    init_scale: float = 0.8

    def __post_init__(self) -> None:
        """Refuse what the model can't do, naming the field."""
        check_sizes(self)
        check_choices(self)
        check_combinations(self)
        check_positions(self)
        check_biases(self)
        for layer in range(self.n_layers):
            check_rule(self, self.rule(layer))

    @property
    def head_width(self) -> int:
        """`d_head`, filled in."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """`n_kv_heads`, filled in."""
        return self.n_kv_heads if self.n_kv_heads is not None else self.n_heads

    @property
    def vocab_out(self) -> int:
        """`d_vocab_out`, filled in."""
        return self.d_vocab if self.d_vocab_out is None else self.d_vocab_out

    @property
    def normalization_at_end(self) -> Normalization:
        """`final_normalization`, filled in."""
        return self.normalization if self.final_normalization is None else self.final_normalization

    @property
    def scale(self) -> float:
        """What q·k is multiplied with, where all layers share it.

        Raises:
            ValueError: They do not.
        """
        if isinstance(self.attention_scale, tuple):
            raise ValueError("attention_scale differs between layers; ask for scale_of(layer)")
        return self.head_width**-0.5 if self.attention_scale is None else self.attention_scale

    def scale_of(self, layer: int) -> float:
        """What q·k is multiplied with in this layer."""
        if isinstance(self.attention_scale, tuple):
            return self.attention_scale[layer]
        return self.scale

    def has_bias(self, part: str) -> bool:
        """Whether a part, one of `BIASES`, has additive biases."""
        return part in self.bias if isinstance(self.bias, tuple) else self.bias and part != "gate"

    def attention_of(self, layer: int) -> tuple[str, dict[str, Any]]:
        """A layer's kind of attention, and its options."""
        kind = self.attention if isinstance(self.attention, str) else self.attention[layer]
        options = self.attention_options
        options = options[layer] if isinstance(options, tuple) else options
        return kind, {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}

    def rule(self, layer: int) -> Rule:
        """What a token of this layer may see.

        Raises:
            ValueError: The kind is unknown, or does not take these options.
        """
        kind, options = self.attention_of(layer)
        if kind not in MASKS:
            raise ValueError(no_such("attention", kind, MASKS))
        known = {f.name: f.default is MISSING for f in fields(MASKS[kind])}
        for name in options:
            if name not in known:
                takes = ", ".join(known) or "no options"
                raise ValueError(f"attention_options: {kind!r} takes {takes}, got {name!r}")
        missing = [name for name, needed in known.items() if needed and name not in options]
        if missing:
            raise ValueError(
                f"attention_options: {kind!r} needs {', '.join(missing)}, got {options}"
            )
        return MASKS[kind](**options)

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
                raise ValueError(no_such("TransformerConfig", name, known))
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**plain)


__all__ = ["BIASES", "Normalization", "Positional", "TransformerConfig"]
