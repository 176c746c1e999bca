"""A Hugging Face causal LM as it is, observed at its attention: nothing is reimplemented."""

from dataclasses import replace
from functools import cached_property
from inspect import signature
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from interp.attention import AttentionCall, Kernel
from interp.attention.masks import positions_of
from interp.hooks import Tap
from interp.interop.attention_interface import Running, observing
from interp.interop.foreign import ForeignBlock, ForeignHeads, ForeignNorm, last_norm
from interp.interop.observed import Observed, mixed_by
from interp.interop.wrapped_config import config_of, look


class Wrapped(Observed):
    """A transformers model, as it was given.

    Attributes:
        hf: The model itself.
    """

    def __init__(self, hf: Any) -> None:
        self.hf = hf
        self.tokenizer: Any = None
        modules, call = look(hf)
        self._layer_of = {id(module): layer for layer, module in enumerate(modules)}
        self.config = config_of(hf, len(modules), call)
        heads = [ForeignHeads(m, self.config.n_heads, layer) for layer, m in enumerate(modules)]
        self.blocks = [ForeignBlock(h) for h in heads]
        self._takes_positions = "position_ids" in signature(hf.forward).parameters

    @property
    def module(self) -> nn.Module:
        """The model itself."""
        return self.hf

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding: a view."""
        return self.hf.get_output_embeddings().weight.detach().T

    @cached_property
    def ln_final(self) -> ForeignNorm:
        """The norm before the unembedding."""
        return last_norm(self.hf)

    def _forward(
        self, tokens: Tensor, mask: Tensor | None, tap: Tap, kernel: Kernel, *, unembed: bool
    ) -> Tensor:
        given = self._given(tokens, mask)

        def attend_here(call: AttentionCall, module: Any) -> Tensor:
            layer = self._layer_of[id(module)]
            here = tap.under(f"blocks.{layer}.attn")
            return mixed_by(kernel, self._offered(replace(call, layer=layer), here), here)

        with observing(self.hf, Running(self.hf.config, attend_here, mask)):
            if unembed:
                return self.hf(**given).logits
            return self.hf.base_model(**given).last_hidden_state

    def _given(self, tokens: Tensor, mask: Tensor | None) -> dict[str, Any]:
        given: dict[str, Any] = {"input_ids": tokens, "use_cache": False}
        if mask is None:
            return given
        given["attention_mask"] = mask.long()
        if self._takes_positions:
            given["position_ids"] = positions_of(mask)
        elif not bool((mask[:, :-1] >= mask[:, 1:]).all()):
            raise ValueError(
                f"{self.config.architecture} takes no position_ids: pad on the right, so that "
                "real tokens stand where they would without padding"
            )
        return given

    def _offered(self, call: AttentionCall, tap: Tap) -> AttentionCall:
        """The call, after hooks on queries, keys and values."""
        if not tap.active:
            return call
        turned = "hook_rot_" if self.config.rotary else "hook_"
        names = {f"{turned}q": call.q, f"{turned}k": call.k, "hook_v": call.v}
        q, k, v = (tap(n, x.transpose(1, 2)).transpose(1, 2) for n, x in names.items())
        return replace(call, q=q, k=k, v=v)


def wrap(model: Any) -> Observed:
    """A Hugging Face causal LM, or a TransformerBridge, for probes and experiments, as it is.

    The model computes what it computed before, and is left as it was: only while a wrapped call
    runs does its config name our attention function.

    Raises:
        TypeError: It is no such model, or its attention bypasses transformers' registry.
    """
    from transformers import PreTrainedModel

    if isinstance(model, PreTrainedModel) and model.get_output_embeddings() is not None:
        return Wrapped(model)
    if type(model).__module__.startswith("transformer_lens."):
        from interp.interop.wrap_bridge import WrappedBridge

        return WrappedBridge(model)
    raise TypeError(
        f"wrap takes a transformers causal LM (AutoModelForCausalLM) or a TransformerBridge, "
        f"got {type(model).__name__}"
    )
