"""The two stacks of an encoder–decoder, and the block that looks across."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from interp.attention import Kernel, KVCache, Rule, Visible
from interp.attention.masks import positions_of
from interp.attention.reindexing import turns_back
from interp.calls import check_tokens
from interp.config import TransformerConfig
from interp.hooks import Tap
from interp.layers import Attention, Block, Where, position_table
from interp.norms import norm_of
from interp.seq2seq.cache import Seq2SeqCache
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
        cache: Seq2SeqCache | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """What the heads write together; a cache has the keys and values from its second call."""
        kept = None if cache is None else cache.across(self.layer)
        if kept is None:
            (q, k, v) = (
                self._heads(n, s, tap) for n, s in zip("qkv", (x, memory, memory), strict=True)
            )
            q, k = self.q_norm(q, tap.under("q_norm")), self.k_norm(k, tap.under("k_norm"))
        else:
            q, (k, v) = self.q_norm(self._heads("q", x, tap), tap.under("q_norm")), kept
        if cache is not None:
            cache.keep_across(self.layer, k, v)
        call = self.call(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), visible)
        if tap.active:
            self._leave_recipes(call, tap)
        return self._write(tap("hook_z", kernel(call, tap).transpose(1, 2)), tap)

    def _heads(
        self, name: str, stream: Float[Tensor, "batch pos d_model"], tap: Tap
    ) -> Float[Tensor, "batch pos head d_head"]:
        weight, bias = list(self._qkv_parts())["qkv".index(name)]
        bias = None if bias is None else bias.flatten()
        heads = F.linear(stream, weight.flatten(0, 1), bias)
        return tap(f"hook_{name}", heads.unflatten(-1, weight.shape[:2]))


class DecoderBlock(Block):
    """Masked self-attention, cross-attention, then an MLP if there is one."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.ln_cross = norm_of(config, config.normalization)
        self.cross_attn = CrossAttention(config, layer)

    def between(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        memory: Float[Tensor, "batch source d_model"],
        tap: Tap,
        *,
        visible: Visible,
        where: Where,
        cache: Seq2SeqCache | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after this block."""
        resid = tap("hook_resid_pre", resid)
        written = self.attn(self._qkv_inputs(resid, tap), tap.under("attn"), where)
        written = self.dropout(self.ln1_post(written, tap.under("ln1_post")))
        resid = tap("hook_resid_cross", resid + tap("hook_attn_out", written))
        x = self.ln_cross(resid, tap.under("ln_cross"))
        written = self.cross_attn.across(
            x, memory, tap.under("cross_attn"), visible=visible, kernel=where.kernel, cache=cache
        )
        resid = resid + tap("hook_cross_attn_out", self.dropout(written))
        if self.mlp is None:
            return tap("hook_resid_post", resid)
        resid = tap("hook_resid_mid", resid)
        return tap("hook_resid_post", resid + tap("hook_mlp_out", self._mlp_out(resid, tap)))


@dataclass(frozen=True)
class Slots:
    """Where the tokens of one call stand, and those that a cache holds before them.

    Attributes:
        q_pos: Positions of this call's tokens.
        k_pos: Positions of all tokens so far.
        real_q: True where this call's are real; None: all are.
        real_k: True where all so far are real; None: all are.
    """

    q_pos: Int[Tensor, "b pos"]
    k_pos: Int[Tensor, "b so_far"]
    real_q: Bool[Tensor, "batch pos"] | None
    real_k: Bool[Tensor, "batch so_far"] | None

    def under(self, rule: Rule) -> Visible:
        """Who may see whom under a rule."""
        return Visible(
            rule, self.q_pos, self.k_pos, self.real_q, self.real_k, in_order=self.real_k is None
        )


def slots_of(tokens: Tensor, mask: Tensor | None, kv_cache: KVCache | None) -> Slots:
    """Positions: a token's index among the real ones, those of the cache before this call's."""
    past, n = 0 if kv_cache is None else kv_cache.length, tokens.shape[1]
    if mask is None and (kv_cache is None or not kv_cache.padded):
        k_pos = torch.arange(past + n, device=tokens.device)[None]
        return Slots(k_pos[:, past:], k_pos, None, None)
    real_q = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    held = None if kv_cache is None else kv_cache.real
    real_k = real_q if held is None else torch.cat([held, real_q], 1)
    k_pos = positions_of(real_k)
    return Slots(k_pos[:, past:], k_pos, real_q, real_k)


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

    def start(
        self, tokens: Tensor, mask: Tensor | None, tap: Tap, kv_cache: KVCache | None = None
    ) -> tuple[Float[Tensor, "batch pos d_model"], Slots]:
        """The residual stream that enters the first block, and where its tokens stand."""
        check_tokens(self.config, tokens)
        past = 0 if kv_cache is None else kv_cache.length
        if past + tokens.shape[1] > self.config.n_ctx:
            held = f" behind {past} cached ones" if past else ""
            raise ValueError(
                f"{tokens.shape[1]} tokens{held} are more than this stack's "
                f"n_ctx={self.config.n_ctx}"
            )
        slots = slots_of(tokens, mask, kv_cache)
        resid = tap("hook_embed", self.embed(tokens))
        rows = None
        if self.pos_embed is not None:
            rows = self.pos_embed(slots.q_pos)
        elif self.config.positional == "sinusoidal":
            rows = cast("Tensor", self.position_table)[slots.q_pos].to(resid.dtype)
        if rows is not None:
            resid = resid + tap("hook_pos_embed", rows.expand_as(resid).contiguous())
        return self.dropout(resid), slots

    def where(self, slots: Slots, kernel: Kernel, kv_cache: KVCache | None = None) -> Where:
        """What the blocks' self-attention shares."""
        seen = {rule: slots.under(rule) for rule in {block.attn.rule for block in self.blocks}}
        if kv_cache is not None:
            seen = {rule: kv_cache.visible_of(visible) for rule, visible in seen.items()}
        turn, back = None, {}
        if self.config.positional == "rotary":
            table = cast("Tensor", self.position_table)
            turn, back = table[:, slots.q_pos], turns_back(table, seen, slots.q_pos)
        return Where(seen, turn, None, kv_cache, kernel, back)
