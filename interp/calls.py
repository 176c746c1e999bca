"""What one call of the model was asked for, checked before anything is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.attention import KVCache
from interp.config import TransformerConfig
from interp.generate import check_request, check_room
from interp.names import hook_names

Returns = Literal["logits", "loss", "both"]


@dataclass(frozen=True)
class Call:
    """The input of a forward pass, and which layers run.

    Attributes:
        tokens: Token ids [B T], or the residual stream [B T D] where `first_layer` is given.
        mask: True where a token is real, or None: all are.
        kv_cache: Keys and values so far, or None.
        layers: The blocks that run.
        first_layer: Where the residual stream comes in; None: the embedding runs.
        stop_layer: The layer whose input is returned; None: the unembedding runs.
        checkpointed: Whether blocks run again for their gradients, in place of keeping activations.
    """

    tokens: Tensor
    mask: Bool[Tensor, "batch pos"] | None
    kv_cache: KVCache | None
    layers: range
    first_layer: int | None
    stop_layer: int | None
    checkpointed: bool = False

    @property
    def n_tokens(self) -> int:
        """Slots of this call, pads included."""
        return self.tokens.shape[1]

    @property
    def past(self) -> int:
        """Slots that the cache holds."""
        return 0 if self.kv_cache is None else self.kv_cache.length

    @property
    def real(self) -> Bool[Tensor, "batch pos"]:
        """The mask, spelled out."""
        if self.mask is not None:
            return self.mask
        return torch.ones(self.tokens.shape[:2], dtype=torch.bool, device=self.tokens.device)

    def hook_names(self, config: TransformerConfig) -> list[str]:
        """The activations that this call offers."""
        embeds, unembeds = self.first_layer is None, self.stop_layer is None
        ends = {(1, 1): "both", (1, 0): "embed", (0, 1): "unembed", (0, 0): "neither"}
        first, last = self.layers.start, self.layers.stop
        return hook_names(config, first=first, last=last, ends=ends[embeds, unembeds])


def checked_call(
    config: TransformerConfig,
    tokens: Tensor,
    mask: Tensor | None,
    kv_cache: KVCache | None,
    start_at_layer: int | None,
    stop_at_layer: int | None,
    return_type: str,
) -> Call:
    """Refuse what does not fit the model, each with one clear error."""
    first = 0 if start_at_layer is None else _layer(config, "start_at_layer", start_at_layer)
    last = config.n_layers
    if stop_at_layer is not None:
        last = _layer(config, "stop_at_layer", stop_at_layer)
    if first > last:
        raise ValueError(f"start_at_layer ({first}) lies behind stop_at_layer ({last})")
    if return_type not in get_args(Returns):
        raise ValueError(f"return_type must be 'logits', 'loss' or 'both', got {return_type!r}")
    if return_type != "logits" and (start_at_layer is not None or stop_at_layer is not None):
        raise ValueError(f"return_type={return_type!r} needs tokens in and logits out: a whole run")
    if start_at_layer is None:
        check_tokens(config, tokens)
    elif tokens.dim() != 3 or tokens.shape[2] != config.d_model:
        raise ValueError(
            f"start_at_layer wants the residual stream [batch pos {config.d_model}], "
            f"got {list(tokens.shape)}"
        )
    if return_type != "logits":
        check_predicts_tokens(config)
    if kv_cache is not None:
        check_cache(config, kv_cache, tokens.shape[0])
    call = Call(tokens, mask, kv_cache, range(first, last), start_at_layer, stop_at_layer)
    _check_length(config, call)
    return call


def checkpointed(call: Call) -> Call:
    """The call with activations checkpointed, where gradients are to be taken at all.

    Raises:
        ValueError: It has a KV cache, which running a block twice would extend twice.
    """
    if call.kv_cache is not None:
        raise ValueError(
            "checkpoint_activations runs blocks twice, and a KV cache can't be extended twice: "
            "leave one of them out"
        )
    return replace(call, checkpointed=torch.is_grad_enabled())


def check_cache(config: TransformerConfig, kv_cache: KVCache, batch: int) -> None:
    """Refuse what is no KV cache of this model and batch.

    Raises:
        TypeError: It is something else.
        ValueError: It is another model's, or of another batch.
    """
    if not isinstance(kv_cache, KVCache):
        got = type(kv_cache).__name__
        raise TypeError(f"kv_cache comes from model.new_kv_cache(), got {got}")
    if kv_cache.n_layers != config.n_layers:
        raise ValueError(
            f"the KV cache is of a model of {kv_cache.n_layers} layers, this one has "
            f"{config.n_layers}; use its own model.new_kv_cache()"
        )
    kv_cache.check_batch(batch)


def _layer(config: TransformerConfig, name: str, layer: int) -> int:
    found = layer + config.n_layers if layer < 0 else layer
    if not 0 <= found <= config.n_layers:
        raise ValueError(f"{name}: this model has layers 0 … {config.n_layers - 1}, got {layer}")
    return found


class Vocabulary(Protocol):
    """A config that says how many tokens there are."""

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        ...


def check_tokens(config: Vocabulary, tokens: Int[Tensor, "batch pos"]) -> None:
    """Refuse what is no batch of this model's token ids."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"wanted token ids, an integer tensor [batch pos]; got {got}")
    if tokens.dim() != 2:
        raise ValueError(
            f"wanted tokens [batch pos], got {list(tokens.shape)}; "
            "for one sequence use tokens[None]"
        )
    if torch.compiler.is_compiling() or tokens.device.type != "cpu" or tokens.numel() == 0:
        return  # looking at values would stop the graph, or wait for the device
    least, most = (int(x) for x in tokens.aminmax())
    if least < 0 or most >= config.d_vocab:
        raise ValueError(f"tokens must lie in [0, {config.d_vocab}), got {least} … {most}")


def _check_length(config: TransformerConfig, call: Call) -> None:
    if call.past + call.n_tokens > config.n_ctx:
        held = f" behind {call.past} cached ones" if call.past else ""
        raise ValueError(
            f"{call.n_tokens} tokens{held} are more than the model's context, "
            f"n_ctx={config.n_ctx}; cut the input, or build the model with a longer context"
        )


def check_predicts_tokens(config: TransformerConfig) -> None:
    """Refuse to compare logits with tokens where they are of two vocabularies.

    Raises:
        ValueError: `d_vocab_out` is not `d_vocab`.
    """
    if config.vocab_out != config.d_vocab:
        raise ValueError(
            f"this model's logits are of {config.vocab_out} classes, not of its {config.d_vocab} "
            "tokens; compare them with targets of your own (interp.metrics)"
        )


def check_whole_run(options: Mapping[str, object]) -> None:
    """Refuse, beside a loss, options that make a call return something else.

    Raises:
        ValueError: There is one.
    """
    odd = {"return_type", "start_at_layer", "stop_at_layer"} & set(options)
    if odd:
        raise ValueError(f"a loss is of a whole run: leave {', '.join(sorted(odd))} out")


def checked_mask(mask: Tensor | None, tokens: Tensor) -> Bool[Tensor, "batch pos"] | None:
    """The mask as bools. Integers 0 and 1 are taken, floats are not.

    Raises:
        TypeError: It is of floats.
        ValueError: Its shape is not the tokens'.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        got = type(mask).__name__
        raise TypeError(f"mask must be a bool tensor (True = real token), got {got}")
    if mask.dtype.is_floating_point or mask.dtype.is_complex:
        raise TypeError(f"mask must be bool (True = real token), got {mask.dtype}; use mask.bool()")
    if mask.shape != tokens.shape[:2]:
        raise ValueError(
            f"mask must be [batch pos] like the tokens, {list(tokens.shape[:2])}; "
            f"got {list(mask.shape)}"
        )
    return mask.bool()


def check_generation(
    config: TransformerConfig,
    tokens: Int[Tensor, "batch pos"],
    max_new_tokens: int,
    kv_cache: KVCache,
) -> None:
    """Refuse what a decoder-only model can't continue.

    Raises:
        TypeError: The tokens are no token ids, or the cache is none.
        ValueError: They do not fit the model; it would be longer than `n_ctx`; see `check_request`.
    """
    check_predicts_tokens(config)
    check_tokens(config, tokens)
    check_request(tokens, max_new_tokens)
    check_cache(config, kv_cache, tokens.shape[0])
    check_room(config.n_ctx, kv_cache.length + tokens.shape[1], max_new_tokens)
