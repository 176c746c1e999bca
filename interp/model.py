"""A decoder-only transformer whose activations can be read and replaced by name.

Names, shapes and order of activations are TransformerLens's; what costs extra is made only when a
hook or a cache asks for it. `layers.py` has the parts of a block, this file the whole.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.utils.checkpoint import checkpoint

from interp.attention import CacheKind, Kernel, KVCache, Visible, attend, new_cache
from interp.attention.masks import positions_of
from interp.attention.reindexing import turns_back
from interp.calls import (
    Call,
    Returns,
    check_generation,
    check_predicts_tokens,
    check_whole_run,
    checked_call,
    checked_mask,
    checkpointed,
)
from interp.config import TransformerConfig
from interp.generate import continue_tokens
from interp.hooked import Hooked
from interp.hooks import SILENT, Hooks, Tap
from interp.layers import Block, Where, position_table
from interp.metrics import mean_loss, next_token_targets, per_token_loss
from interp.norms import norm_of
from interp.text import Speaking
from interp.weights import Embedding, Linear, ModelWeights, initialise


class Transformer(Hooked, ModelWeights, Speaking, nn.Module):
    """A hookable decoder-only transformer; `config` says what it computes.

    It runs fused attention. A hook on `hook_pattern` or `hook_attn_scores` materialises that layer,
    in that call alone. Hooks belong to a call: nothing is ever left on the model.

    Names, shapes and order are those of TransformerLens's HookedTransformer (Nanda & Bloom 2022).
    """

    blocks: Sequence[Block]
    position_table: Tensor | None

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if not isinstance(config, TransformerConfig):
            raise TypeError(
                f"wanted a TransformerConfig, got {type(config).__name__}; "
                "of a dict, TransformerConfig(**it)"
            )
        self.config = config
        self.tokenizer: Any = None
        self.embed = Embedding(config.d_vocab, config.d_model)
        learned = config.positional in ("learned", "shortformer")
        self.pos_embed = Embedding(config.n_ctx, config.d_model) if learned else None
        blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        self.blocks = cast("Sequence[Block]", blocks)
        self.ln_final = norm_of(config, config.normalization_at_end)
        self.unembed = Linear(config.d_model, config.vocab_out, config.has_bias("unembed"))
        if config.tied_embeddings:
            self.unembed.weight = self.embed.weight
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.register_buffer("position_table", position_table(config), persistent=False)
        if self.embed.weight.device.type != "meta":
            initialise(self, config.init_scale * config.d_model**-0.5, config.init_seed)

    @classmethod
    def unfilled(
        cls,
        config: TransformerConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "Transformer":
        """A model whose weights hold anything: for loaders, which write every one of them."""
        with torch.device("meta"):
            model = cls(config)
        model = model.to(dtype).to_empty(device=device)
        if config.tied_embeddings:
            model.unembed.weight = model.embed.weight
        table = position_table(config)
        model.position_table = None if table is None else table.to(device)
        return model

    @property
    def cfg(self) -> TransformerConfig:
        """The config, under the name that TransformerLens gives it."""
        return self.config

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"] | Float[Tensor, "batch pos d_model"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        hooks: Hooks = (),
        kv_cache: KVCache | None = None,
        return_type: Returns = "logits",
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        kernel: Kernel = attend,
        checkpoint_activations: bool = False,
    ) -> Any:
        """Logits [B T V]: what should follow each token.

        Args:
            tokens: Token ids; with `start_at_layer`, the residual stream that enters that layer.
            mask: True where a token is real. Pads are neither rows nor keys, and have no position.
            hooks: Pairs (name or glob, fn(activation, hook)), run in order.
            kv_cache: Keys and values of the tokens so far; these tokens are appended.
            return_type: "logits"; "loss", the mean over predicted real tokens, in nats; or "both".
            start_at_layer: Run from this layer on; the layers below cost nothing.
            stop_at_layer: Return the residual stream [B T D] that would enter this layer.
            kernel: What computes attention, in place of the fused route.
            checkpoint_activations: Keep what enters each block, and run it, hooks too, again for
                gradients: the same numbers in less memory.

        Raises:
            LookupError: A hook's name matches nothing that this call computes.
            ValueError: Tokens, mask or layers don't fit; or a KV cache is extended twice.
            TypeError: Tokens or mask are not of integers and bools.
        """
        mask = checked_mask(mask, tokens)
        call = checked_call(
            self.config, tokens, mask, kv_cache, start_at_layer, stop_at_layer, return_type
        )
        if checkpoint_activations:
            call = checkpointed(call)
        if hooks or self._listened_to:
            run = self._run_outside_graphs if torch.compiler.is_compiling() else self._run_hooked
            return run(call, hooks, return_type, kernel)
        return self._run(SILENT, call, return_type, kernel)

    def _run(self, tap: Tap, call: Call, return_type: Returns, kernel: Kernel) -> Any:
        position, where = self._where(call, kernel)
        resid = call.tokens
        if call.first_layer is None:
            resid, where = self._embedded(call, position, where, tap)
        elif self.config.positional == "shortformer":
            where = where.with_qk_pos_embed(self._pos_embedded(call, position, tap))
        for layer in call.layers:
            run = self.blocks[layer]
            if call.checkpointed:
                run = partial(checkpoint, run, use_reentrant=False)
            resid = run(resid, tap.under(f"blocks.{layer}"), where)
        if call.kv_cache is not None:
            call.kv_cache.commit(call.real)
        if call.stop_layer is not None:
            return resid
        logits = self._unembedded(resid, tap)
        if return_type == "logits":
            return logits
        loss = mean_loss(logits, next_token_targets(call.tokens, call.mask))
        return loss if return_type == "loss" else (logits, loss)

    def _run_hooked(self, call: Call, hooks: Hooks, return_type: Returns, kernel: Kernel) -> Any:
        return self._run(self._tap(call, hooks), call, return_type, kernel)

    # What a compiled model falls back to. torch.compiler.disable would do, but loads the compiler
    # (a second) when interp is imported; this does the same when it is first called.
    _run_outside_graphs: Callable[..., Any] = _disable_dynamo(_run_hooked)

    def _where(self, call: Call, kernel: Kernel) -> tuple[Int[Tensor, "b pos"], Where]:
        """Positions of this call's tokens, and what its layers share."""
        n, device, past = call.n_tokens, call.tokens.device, call.past
        if call.mask is None and (call.kv_cache is None or not call.kv_cache.padded):
            k_pos = torch.arange(past + n, device=device)[None]
            real_q, real_k = None, None
        else:
            real_q, real_k = call.real, call.real
            if call.kv_cache is not None and call.kv_cache.real is not None:
                real_k = torch.cat([call.kv_cache.real, real_q], 1)
            k_pos = positions_of(real_k)
        position = k_pos[:, past:]
        seen = {
            rule: Visible(rule, position, k_pos, real_q, real_k, in_order=real_k is None)
            for rule in {self.blocks[layer].attn.rule for layer in call.layers}
        }
        if call.kv_cache is not None:
            seen = {rule: call.kv_cache.visible_of(visible) for rule, visible in seen.items()}
        turn, back = None, {}
        if self.config.positional == "rotary" and self.position_table is not None:
            turn = self.position_table[:, position]
            back = turns_back(self.position_table, seen, position)
        return position, Where(seen, turn, None, call.kv_cache, kernel, back)

    def _embedded(
        self, call: Call, position: Tensor, where: Where, tap: Tap
    ) -> tuple[Tensor, Where]:
        resid = tap("hook_embed", self.embed(call.tokens))
        if self.config.positional in ("learned", "sinusoidal"):
            resid = resid + self._pos_embedded(call, position, tap)
        elif self.config.positional == "shortformer":
            where = where.with_qk_pos_embed(self._pos_embedded(call, position, tap))
        return self.dropout(resid), where

    def _pos_embedded(
        self, call: Call, position: Tensor, tap: Tap
    ) -> Float[Tensor, "b pos d_model"]:
        """Rows of the position table; one for the whole batch unless padding or a hook parts it."""
        if self.pos_embed is not None:
            rows = self.pos_embed(position)
        else:
            rows = cast("Tensor", self.position_table)[position].to(self.embed.weight.dtype)
        if not tap.active:
            return rows
        return tap("hook_pos_embed", rows.expand(call.tokens.shape[0], -1, -1).contiguous())

    def _unembedded(self, resid: Tensor, tap: Tap) -> Tensor:
        x = self.ln_final(resid, tap.under("ln_final"))
        unembed, cap = tap.under("unembed"), self.config.logit_soft_cap
        logits = unembed("hook_out", self.unembed(unembed("hook_in", x)))
        return logits if cap is None else cap * torch.tanh(logits / cap)

    # --- loss, tokens ---------------------------------------------------------------------

    def loss(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        per_token: bool = False,
        **call: Any,
    ) -> Float[Tensor, "*"]:
        """Cross entropy of each next token in nats: the mean over predicted real tokens.

        Args:
            tokens: Token ids.
            mask: True where a token is real; nothing is asked of a pad, or before one.
            per_token: Give [B T-1] instead, NaN where nothing is predicted.
            call: As in a plain call.

        Raises:
            ValueError: No real token follows another; or the call asks for something else.
        """
        check_whole_run(call)
        check_predicts_tokens(self.config)
        logits = self(tokens, mask=mask, **call)
        targets = next_token_targets(tokens, checked_mask(mask, tokens))
        if per_token:
            return per_token_loss(logits, targets)[:, :-1]
        if not bool((targets >= 0).any()):
            raise ValueError(
                f"no token to predict in {list(tokens.shape)} tokens: a loss needs two real "
                "tokens in a row (look at `mask`)"
            )
        return mean_loss(logits, targets)

    def new_kv_cache(self, kind: CacheKind = "contiguous") -> KVCache:
        """An empty cache for `model(tokens, kv_cache=…)`; `interp.attention.CACHES` has the kinds.

        In a "rolling" one, layers forget what they will not see again: those with a window, a
        stream or causal attention by features. Others keep everything.

        Raises:
            ValueError: There is no such kind.
        """
        rules = [block.attn.rule for block in self.blocks]
        scales = [self.config.scale_of(layer) for layer in range(self.config.n_layers)]
        return new_cache(kind, rules, scales=scales)

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "batch pos"],
        max_new_tokens: int = 20,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
        hooks: Hooks = (),
        kv_cache: KVCache | None = None,
    ) -> Int[Tensor, "batch longer"]:
        """The tokens and what the model says comes next, through a KV cache (None: a new one).

        Raises:
            ValueError: It would be longer than `n_ctx`; or a temperature has no generator.
        """
        kv_cache = self.new_kv_cache() if kv_cache is None else kv_cache
        check_generation(self.config, tokens, max_new_tokens, kv_cache)
        return continue_tokens(
            lambda chunk: self(chunk, kv_cache=kv_cache, hooks=hooks),
            tokens,
            max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            generator=generator,
        )
