"""Which configs a model can honour: each check names the field, what came, and what is wanted."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args

from interp.activations import ACTIVATIONS
from interp.attention.features import Featured
from interp.attention.linear import Linear
from interp.attention.masks import Rule, Streaming

Positional = Literal["learned", "sinusoidal", "rotary", "alibi", "shortformer", "none"]
Normalization = Literal["layer_norm", "layer_norm_pre", "rms_norm", "rms_norm_pre", "none"]

BIASES = ("qkv", "o", "mlp", "gate", "norm", "unembed")
"""Parts that may have biases: heads' inputs and outputs, MLPs and their gates, norms, logits."""

SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_n_ctx"),
}
"""Ways to stretch rotary wavelengths, and what each needs."""


def no_such(what: str, got: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """The message for a name that is none of the known ones, with the nearest."""
    near = get_close_matches(str(got), list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{what}: there is no {got!r}{hint} (it may be {', '.join(known)})"


def check_sizes(config: Any) -> None:
    """Refuse sizes that are no counts, and numbers that are not positive."""
    optional = ("n_kv_heads", "d_head", "d_mlp", "rotary_dim", "d_vocab_out")
    needed = ("n_layers", "n_heads", "d_model", "d_vocab", "n_ctx")
    for name in (*needed, *optional):
        value = getattr(config, name)
        least = 0 if name == "n_layers" else 1
        if value is None and name in optional:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    for name in ("norm_eps", "rotary_base", "score_soft_cap", "logit_soft_cap", "attention_scale"):
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not (_is_number(number) and number > 0):
                raise ValueError(f"{name} must be positive, got {value!r}")
    if not (_is_number(config.dropout) and 0 <= config.dropout < 1):
        raise ValueError(f"dropout must lie in [0, 1), got {config.dropout!r}")
    if not (_is_number(config.init_scale) and config.init_scale >= 0):
        raise ValueError(f"init_scale must be a number of at least 0, got {config.init_scale!r}")
    if not isinstance(config.init_seed, int):
        raise ValueError(f"init_seed must be an integer, got {config.init_seed!r}")
    bos = config.bos_token
    if bos is not None and not (isinstance(bos, int) and 0 <= bos < config.d_vocab):
        raise ValueError(f"bos_token must lie in [0, {config.d_vocab}), got {bos!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_choices(config: Any) -> None:
    """Refuse names that are not among the choices, and tuples that are not one a layer."""
    norms = get_args(Normalization)
    choices = {
        "positional": get_args(Positional),
        "normalization": norms,
        "post_normalization": norms,
        "qk_normalization": norms,
        "mlp_normalization": norms,
        "final_normalization": (None, *norms),
        "activation": tuple(ACTIVATIONS),
    }
    for name, known in choices.items():
        value = getattr(config, name)
        if value not in known:
            raise ValueError(no_such(name, value, [str(choice) for choice in known]))
    for name in ("gated_mlp", "parallel", "tied_embeddings", "rotary_interleaved"):
        if not isinstance(getattr(config, name), bool):
            raise ValueError(f"{name} must be True or False, got {getattr(config, name)!r}")
    _check_each_layer(config)


def _check_each_layer(config: Any) -> None:
    for name in ("attention", "attention_options", "attention_scale"):
        value = getattr(config, name)
        if isinstance(value, tuple) and len(value) != config.n_layers:
            raise ValueError(
                f"{name} needs one entry a layer ({config.n_layers}), got {len(value)}"
            )
        wanted, kind = {"attention": ("a name", str), "attention_options": ("a dict", Mapping)}.get(
            name, ("a number", object)
        )
        if not all(isinstance(v, kind) for v in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{name} is {wanted}, or a tuple with one a layer; got {value!r}")


def check_combinations(config: Any) -> None:
    """Refuse fields that contradict each other."""
    if config.d_head is None and config.d_model % config.n_heads:
        raise ValueError(
            f"d_model ({config.d_model}) must be a multiple of n_heads ({config.n_heads}), "
            "or d_head be given"
        )
    if config.n_heads % config.kv_heads:
        raise ValueError(f"n_kv_heads ({config.kv_heads}) must divide n_heads ({config.n_heads})")
    for name in ("gated_mlp", "parallel"):
        if getattr(config, name) and config.d_mlp is None:
            raise ValueError(f"{name} needs an MLP: give d_mlp, or leave it False")
    if config.mlp_normalization != "none" and (config.d_mlp is None or config.gated_mlp):
        raise ValueError("mlp_normalization needs an MLP that is not gated, or be left 'none'")
    if config.tied_embeddings and config.vocab_out != config.d_vocab:
        raise ValueError(
            f"tied_embeddings needs as many logits as tokens: d_vocab is {config.d_vocab}, "
            f"d_vocab_out {config.vocab_out}"
        )


def check_positions(config: Any) -> None:
    """Refuse what belongs to another kind of positions, and scalings that are not complete."""
    if config.positional == "rotary":
        turned = config.rotary_dim or config.head_width
        if turned % 2 or turned > config.head_width:
            raise ValueError(
                f"rotary_dim must be even and at most d_head ({config.head_width}), got {turned}"
            )
    for name in ("rotary_dim", "rotary_interleaved", "rotary_scaling", "alibi_slopes"):
        kind, value = name.split("_")[0], getattr(config, name)
        if value not in (None, False) and config.positional != kind:
            raise ValueError(f"{name} needs positional={kind!r}, got {config.positional!r}")
    slopes = config.alibi_slopes
    if slopes is not None and len(slopes) != config.n_heads:
        raise ValueError(f"alibi_slopes needs one a head ({config.n_heads}), got {len(slopes)}")
    if slopes is not None and not all(_is_number(slope) for slope in slopes):
        raise ValueError(f"alibi_slopes must be numbers, got {slopes!r}")
    if config.rotary_scaling is not None:
        _check_scaling(config.rotary_scaling)


def _check_scaling(scaling: Mapping[str, Any]) -> None:
    if not isinstance(scaling, Mapping):
        raise ValueError(f"rotary_scaling is a dict with a 'kind', got {scaling!r}")
    options = dict(scaling)
    kind = options.pop("kind", None)
    if kind not in SCALINGS:
        raise ValueError(no_such("rotary_scaling['kind']", str(kind), SCALINGS))
    if set(options) != set(SCALINGS[kind]):
        wanted, got = ", ".join(SCALINGS[kind]), ", ".join(options) or "nothing"
        raise ValueError(f"rotary_scaling: {kind!r} takes {wanted}; got {got}")
    if any(not (_is_number(value) and value > 0) for value in options.values()):
        raise ValueError(f"rotary_scaling: the numbers must be positive, got {options}")
    if kind == "llama3" and options["low_freq_factor"] >= options["high_freq_factor"]:
        raise ValueError(
            f"rotary_scaling: low_freq_factor must be below high_freq_factor, got {options}"
        )


def check_rule(config: Any, rule: Rule) -> None:
    """Refuse what a layer's kind of attention has no use for."""
    if isinstance(rule, Streaming) and rule.positions == "cache":
        if config.positional not in ("rotary", "alibi"):
            raise ValueError(
                "positions='cache' re-indexes rotations or biases: it needs positional='rotary' or "
                f"'alibi', got {config.positional!r}"
            )
        return
    if not isinstance(rule, Featured):
        return
    kind = type(rule).__name__.lower()
    if config.positional == "alibi" or config.score_soft_cap is not None or config.sink_logits:
        raise ValueError(
            f"{kind!r} attention has no scores before a softmax: it takes neither "
            "positional='alibi' nor score_soft_cap nor sink_logits"
        )
    if isinstance(rule, Linear) and config.attention_scale is not None:
        raise ValueError("'linear' attention does not scale q·k: leave attention_scale out")


def check_biases(config: Any) -> None:
    """Refuse biases of parts that do not exist."""
    if isinstance(config.bias, bool):
        return
    if not isinstance(config.bias, tuple):
        raise ValueError(f"bias must be True, False or a tuple of parts, got {config.bias!r}")
    for part in config.bias:
        if part not in BIASES:
            raise ValueError(no_such("bias", part, BIASES))
    if "gate" in config.bias and not config.gated_mlp:
        raise ValueError("bias: 'gate' needs gated_mlp=True; leave it out")
