"""The two stacks of an encoder–decoder, and the block that looks across."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from interp.attention import Kernel, Visible
from interp.attention.masks import positions_of
from interp.calls import check_tokens
from interp.config import TransformerConfig
from interp.hooks import Tap
from interp.layers import Attention, Block, Where, position_table
from interp.norms import norm_of
from interp.weights import Embedding


class CrossAttention(Attention):
    """Queries from the decoder's stream, keys and values from what the encoder made."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.position_bias, self.smear = None, None  # the source's order is the encoder's affair

    def across(
        self,
        x: Float[Tensor, "batch pos d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tap: Tap,
        *,
        visible: Visible,
        kernel: Kernel,
    ) -> Float[Tensor, "batch pos d_model"]:
        """What the heads write together."""
        projected = []
        for name, stream, (weight, bias) in zip(
            "qkv", (x, memory, memory), self._qkv_parts(), strict=True
        ):
            bias = None if bias is None else bias.flatten()
            heads = F.linear(stream, weight.flatten(0, 1), bias).unflatten(-1, weight.shape[:2])
            projected.append(tap(f"hook_{name}", heads))
        q, k, v = projected
        q, k = self.q_norm(q, tap.under("q_norm")), self.k_norm(k, tap.under("k_norm"))
        call = self.call(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), visible)
        if tap.active:
            self._leave_recipes(call, tap)
        return self._write(tap("hook_z", kernel(call, tap).transpose(1, 2)), tap)


class DecoderBlock(Block):
    """Masked self-attention, cross-attention, then an MLP if there is one."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.ln_cross = norm_of(config, config.normalization)
        self.cross_attn = CrossAttention(config, layer)

    def between(
        self, resid: Tensor, memory: Tensor, tap: Tap, *, visible: Visible, where: Where
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after this block."""
        resid = tap("hook_resid_pre", resid)
        written = self.attn(self._qkv_inputs(resid, tap), tap.under("attn"), where)
        written = self.dropout(self.ln1_post(written, tap.under("ln1_post")))
        resid = tap("hook_resid_cross", resid + tap("hook_attn_out", written))
        x = self.ln_cross(resid, tap.under("ln_cross"))
        written = self.cross_attn.across(
            x, memory, tap.under("cross_attn"), visible=visible, kernel=where.kernel
        )
        resid = resid + tap("hook_cross_attn_out", self.dropout(written))
        if self.mlp is None:
            return tap("hook_resid_post", resid)
        resid = tap("hook_resid_mid", resid)
        return tap("hook_resid_post", resid + tap("hook_mlp_out", self._mlp_out(resid, tap)))


class Stack(nn.Module):
    """Embedding, positions, blocks and a last norm."""

    def __init__(self, config: TransformerConfig, block: Callable[..., Block]) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config.d_vocab, config.d_model)
        learned = config.positional == "learned"
        self.pos_embed = Embedding(config.n_ctx, config.d_model) if learned else None
        blocks = nn.ModuleList(block(config, layer) for layer in range(config.n_layers))
        self.blocks = cast("Sequence[Any]", blocks)
        self.ln_final = norm_of(config, config.normalization_at_end)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.register_buffer("position_table", position_table(config), persistent=False)

    def start(self, tokens: Tensor, mask: Tensor | None, tap: Tap) -> tuple[Tensor, Tensor]:
        """The residual stream that enters the first block, and positions."""
        check_tokens(self.config, tokens)
        if tokens.shape[1] > self.config.n_ctx:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than this stack's n_ctx={self.config.n_ctx}"
            )
        position = torch.arange(tokens.shape[1], device=tokens.device)[None]
        position = position if mask is None else positions_of(mask)
        resid = tap("hook_embed", self.embed(tokens))
        rows = None
        if self.pos_embed is not None:
            rows = self.pos_embed(position)
        elif self.config.positional == "sinusoidal":
            rows = cast("Tensor", self.position_table)[position].to(resid.dtype)
        if rows is not None:
            resid = resid + tap("hook_pos_embed", rows.expand_as(resid).contiguous())
        return self.dropout(resid), position

    def where(self, position: Tensor, mask: Tensor | None, kernel: Kernel) -> Where:
        """What the blocks' self-attention shares."""
        rules = {block.attn.rule for block in self.blocks}
        seen = {
            rule: Visible(rule, position, position, mask, mask, in_order=mask is None)
            for rule in rules
        }
        turn = None
        if self.config.positional == "rotary":
            turn = cast("Tensor", self.position_table)[:, position]
        return Where(seen, turn, None, None, kernel)
