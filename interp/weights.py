"""Weights under the field's names: views of what is stored, and stacked copies over layers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Linear(nn.Linear):
    """nn.Linear that leaves its weights, and the global generator, to `initialise`."""

    def reset_parameters(self) -> None:
        """Draw nothing."""


class Embedding(nn.Embedding):
    """nn.Embedding that leaves its weights, and the global generator, to `initialise`."""

    def reset_parameters(self) -> None:
        """Draw nothing."""


class HeadWeights:
    """One layer's stored matrices, per head: views to write to, without gradient."""

    qkv: nn.Linear
    o: nn.Linear
    n_heads: int
    kv_heads: int
    d_head: int

    def _part(self, x: Tensor, which: int) -> Tensor:
        first = [0, self.n_heads, self.n_heads + self.kv_heads][which]
        size = self.n_heads if which == 0 else self.kv_heads
        return x.detach().unflatten(0, (-1, self.d_head)).narrow(0, first, size)

    def _part_of_bias(self, which: int) -> Tensor:
        if self.qkv.bias is not None:
            return self._part(self.qkv.bias, which)
        return self._part(self.qkv.weight.new_zeros(self.qkv.out_features), which)

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """From the normalised residual stream to queries."""
        return self._part(self.qkv.weight, 0).mT

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """From the normalised residual stream to keys, per stored key/value head."""
        return self._part(self.qkv.weight, 1).mT

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """From the normalised residual stream to values, per stored key/value head."""
        return self._part(self.qkv.weight, 2).mT

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """From z to the residual stream."""
        return self.o.weight.detach().unflatten(1, (-1, self.d_head)).permute(1, 2, 0)

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"]:
        """Added to queries; zeros that are not stored where the model has no biases."""
        return self._part_of_bias(0)

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"]:
        """Added to keys; zeros that are not stored where the model has no biases."""
        return self._part_of_bias(1)

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_head"]:
        """Added to values; zeros that are not stored where the model has no biases."""
        return self._part_of_bias(2)

    @property
    def b_O(self) -> Float[Tensor, " d_model"]:
        """Added to what the heads write; zeros that are not stored where there are no biases."""
        return _bias(self.o)


class MLPWeights:
    """One layer's MLP matrices. The views can be written to; they carry no gradient."""

    up: nn.Linear
    gate: nn.Linear | None
    down: nn.Linear

    @property
    def W_in(self) -> Float[Tensor, "d_model d_mlp"]:
        """From the normalised residual stream to the hidden layer."""
        return self.up.weight.detach().T

    @property
    def W_gate(self) -> Float[Tensor, "d_model d_mlp"]:
        """From the normalised residual stream to the gate.

        Raises:
            AttributeError: The MLP is not gated.
        """
        if self.gate is None:
            raise AttributeError("W_gate: this MLP is not gated (config.gated_mlp is False)")
        return self.gate.weight.detach().T

    @property
    def W_out(self) -> Float[Tensor, "d_mlp d_model"]:
        """From the hidden layer to the residual stream."""
        return self.down.weight.detach().T

    @property
    def b_in(self) -> Float[Tensor, " d_mlp"]:
        """Added to the hidden layer; zeros that are not stored where there are no biases."""
        return _bias(self.up)

    @property
    def b_gate(self) -> Float[Tensor, " d_mlp"]:
        """Added to the gate before its activation; zeros that are not stored where there are none.

        Raises:
            AttributeError: The MLP is not gated.
        """
        if self.gate is None:
            raise AttributeError("b_gate: this MLP is not gated (config.gated_mlp is False)")
        return _bias(self.gate)

    @property
    def b_out(self) -> Float[Tensor, " d_model"]:
        """Added to what the MLP writes; zeros that are not stored where there are no biases."""
        return _bias(self.down)


def _bias(linear: nn.Linear) -> Tensor:
    if linear.bias is None:
        return linear.weight.new_zeros(linear.out_features)
    return linear.bias.detach()


class ModelWeights:
    """A model's matrices: views at both ends, stacked copies over layers, per query head."""

    embed: nn.Embedding
    pos_embed: nn.Embedding | None
    unembed: nn.Linear
    blocks: Sequence[Any]

    def _stacked(self, read: Callable[[Any], Tensor]) -> Tensor:
        return torch.stack([read(block) for block in self.blocks])

    def _stacked_heads(self, name: str) -> Tensor:
        n_heads = self.blocks[0].attn.n_heads
        stacked = self._stacked(lambda block: getattr(block.attn, name))
        return stacked.repeat_interleave(n_heads // stacked.shape[1], dim=1)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """The embedding: a view that can be written to; it carries no gradient."""
        return self.embed.weight.detach()

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The position embedding: a view that can be written to; it carries no gradient.

        Raises:
            AttributeError: This model's positions are not learned.
        """
        if self.pos_embed is None:
            raise AttributeError("W_pos: this model learns no position embedding")
        return self.pos_embed.weight.detach()

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding: a view that can be written to; it carries no gradient."""
        return self.unembed.weight.detach().T

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"]:
        """Added to the logits; zeros that are not stored where the model has no biases."""
        return _bias(self.unembed)

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """A copy."""
        return self._stacked_heads("W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """A copy; a shared key head stands once for each of its query heads."""
        return self._stacked_heads("W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """A copy; a shared value head stands once for each of its query heads."""
        return self._stacked_heads("W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """A copy."""
        return self._stacked_heads("W_O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"]:
        """A copy."""
        return self._stacked_heads("b_Q")

    @property
    def b_K(self) -> Float[Tensor, "layer head d_head"]:
        """A copy, per query head."""
        return self._stacked_heads("b_K")

    @property
    def b_V(self) -> Float[Tensor, "layer head d_head"]:
        """A copy, per query head."""
        return self._stacked_heads("b_V")

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """A copy."""
        return self._stacked(lambda block: block.attn.b_O)

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        """A copy."""
        return self._stacked(lambda block: block.mlp.W_in)

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        """A copy."""
        return self._stacked(lambda block: block.mlp.W_out)


@torch.no_grad()
def initialise(model: nn.Module, std: float, seed: int) -> None:
    """Draw all matrices from a normal distribution of width `std`, zero biases, gains of one.

    The generator is of its own: the global one is left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() >= 2:
            weight.copy_(torch.randn(weight.shape, generator=generator) * std)
        elif name.endswith("bias"):
            weight.zero_()


def check_own(model: object) -> None:
    """Refuse what is no model of ours where weights are read or written.

    Raises:
        TypeError: It is something else, a wrapped model among others.
    """
    if not isinstance(model, ModelWeights):
        raise TypeError(
            f"wanted an interp.Transformer, whose weights can be read; got {type(model).__name__} "
            "(interp.load_hugging_face and interp.from_bridge make one of another library's)"
        )
