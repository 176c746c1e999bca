"""An encoder–decoder transformer: self-, masked self- and cross-attention, all of it hookable.

Source: Vaswani et al. 2017, "Attention Is All You Need", with norms before each part (as GPT-2
does) in place of after.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from interp.attention import Full, Kernel, Visible, attend
from interp.attention.masks import positions_of
from interp.cache import ActivationCache, Anatomy, NamesFilter, names_to_record
from interp.calls import check_tokens, checked_mask
from interp.config import TransformerConfig
from interp.generate import sample
from interp.hooks import Hooks, Recorder, Tap, resolve
from interp.layers import Attention, Block, Where, position_table
from interp.names import SPLIT_INPUTS, hook_names
from interp.norms import norm_of
from interp.weights import Embedding, Linear, initialise


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """Two stacks: the encoder reads a source, the decoder writes with its eyes on it.

    Attributes:
        encoder: Its `attention` says what source tokens see of each other, mostly "full".
        decoder: Its `attention` must show no later token; `init_seed` and `init_scale` are its.
    """

    encoder: TransformerConfig
    decoder: TransformerConfig

    def __post_init__(self) -> None:
        if self.encoder.d_model != self.decoder.d_model:
            raise ValueError(
                "encoder and decoder must be equally wide: d_model is "
                f"{self.encoder.d_model} and {self.decoder.d_model}"
            )
        for name, config in (("encoder", self.encoder), ("decoder", self.decoder)):
            if config.positional == "shortformer" or config.parallel:
                raise ValueError(f"{name}: neither positional='shortformer' nor parallel is built")
        ahead = torch.arange(self.decoder.n_ctx)
        for layer in range(self.decoder.n_layers):
            if bool(self.decoder.rule(layer)(ahead[:, None], ahead[None]).triu(1).any()):
                kind = self.decoder.attention_of(layer)[0]
                raise ValueError(f"decoder: {kind!r} attention sees later tokens; use 'causal'")


class CrossAttention(Attention):
    """Queries from the decoder's stream, keys and values from what the encoder made."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.position_bias = None

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


class Seq2SeqTransformer(nn.Module):
    """A hookable encoder–decoder; names are `Transformer`'s under `encoder.` and `decoder.`.

    Cross-attention is `decoder.blocks.{l}.cross_attn`, between `hook_resid_cross` and
    `hook_cross_attn_out`; the end is `unembed.hook_in` and `unembed.hook_out`.
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config.encoder, Block)
        self.decoder = Stack(config.decoder, DecoderBlock)
        out = config.decoder
        self.unembed = Linear(out.d_model, out.vocab_out, out.has_bias("unembed"))
        if out.tied_embeddings:
            self.unembed.weight = self.decoder.embed.weight
        with torch.no_grad():
            initialise(self, out.init_scale * out.d_model**-0.5, out.init_seed)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        tokens: Int[Tensor, "batch pos"],
        *,
        source_mask: Bool[Tensor, "batch source"] | None = None,
        mask: Bool[Tensor, "batch pos"] | None = None,
        hooks: Hooks = (),
        kernel: Kernel = attend,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits: what should follow each of the decoder's tokens, given the source.

        Args:
            source: What the encoder reads.
            tokens: What the decoder has said.
            source_mask: True where a source token is real.
            mask: True where a token is real.
            hooks: Pairs (name or glob, fn(activation, hook)), run in order.
            kernel: What computes attention, in place of the fused route.

        Raises:
            LookupError: A hook's name matches nothing.
            ValueError: Tokens or masks do not fit the model.
        """
        tap = Tap(resolve(hooks, self.hook_names()) if hooks else {})
        return self._run(tap, source, tokens, (source_mask, mask), kernel)

    def run_with_hooks(
        self, source: Tensor, tokens: Tensor, fwd_hooks: Hooks = (), **call: Any
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """`model(source, tokens, hooks=fwd_hooks)`, in TransformerLens's spelling."""
        return self(source, tokens, hooks=fwd_hooks, **call)

    def run_with_cache(
        self,
        source: Int[Tensor, "batch source"],
        tokens: Int[Tensor, "batch pos"],
        names_filter: NamesFilter = None,
        *,
        source_mask: Bool[Tensor, "batch source"] | None = None,
        mask: Bool[Tensor, "batch pos"] | None = None,
        hooks: Hooks = (),
        kernel: Kernel = attend,
        keep_gradients: bool = False,
    ) -> tuple[Tensor, ActivationCache]:
        """Logits, and the activations by full name as they flowed on, after hooks."""
        names = names_to_record(names_filter, self.hook_names(), SPLIT_INPUTS)
        recorder = Recorder(names, keep_gradients)
        tap = Tap(resolve(hooks, self.hook_names()), recorder=recorder)
        logits = self._run(tap, source, tokens, (source_mask, mask), kernel)
        layers = self.config.decoder.n_layers
        return logits, ActivationCache(recorder.entries, _bare_anatomy(layers))

    def hook_names(self) -> list[str]:
        """Every activation that a call offers, in order."""
        return seq2seq_names(self.config)

    @torch.no_grad()
    def generate(
        self,
        source: Int[Tensor, "batch source"],
        tokens: Int[Tensor, "batch pos"],
        max_new_tokens: int,
        *,
        source_mask: Bool[Tensor, "batch source"] | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "batch longer"]:
        """The decoder's tokens and what it says next, recomputed at each step."""
        for _ in range(max_new_tokens):
            logits = self(source, tokens, source_mask=source_mask)[:, -1]
            chosen = sample(logits, temperature=temperature, generator=generator)
            tokens = torch.cat([tokens, chosen[:, None]], 1)
        return tokens

    def _run(
        self,
        tap: Tap,
        source: Tensor,
        tokens: Tensor,
        masks: tuple[Tensor | None, Tensor | None],
        kernel: Kernel,
    ) -> Tensor:
        source_mask, mask = checked_mask(masks[0], source), checked_mask(masks[1], tokens)
        memory, source_position = self._encoded(tap.under("encoder"), source, source_mask, kernel)
        inner = tap.under("decoder")
        resid, position = self.decoder.start(tokens, mask, inner)
        where = self.decoder.where(position, mask, kernel)
        visible = Visible(Full(), position, source_position, mask, source_mask, in_order=False)
        if mask is None and source_mask is None:
            visible = Visible(Full(), position, source_position)
        for layer, block in enumerate(self.decoder.blocks):
            scope = inner.under(f"blocks.{layer}")
            resid = block.between(resid, memory, scope, visible=visible, where=where)
        x = self.decoder.ln_final(resid, inner.under("ln_final"))
        unembed = tap.under("unembed")
        return unembed("hook_out", self.unembed(unembed("hook_in", x)))

    def _encoded(
        self, tap: Tap, source: Tensor, mask: Tensor | None, kernel: Kernel
    ) -> tuple[Tensor, Tensor]:
        resid, position = self.encoder.start(source, mask, tap)
        where = self.encoder.where(position, mask, kernel)
        for layer, block in enumerate(self.encoder.blocks):
            resid = block(resid, tap.under(f"blocks.{layer}"), where)
        return self.encoder.ln_final(resid, tap.under("ln_final")), position


def seq2seq_names(config: Seq2SeqConfig) -> list[str]:
    """Every activation of an encoder–decoder, in the order of the forward pass."""
    encoder = [n for n in hook_names(config.encoder) if not n.startswith("unembed")]
    names = [f"encoder.{n}" for n in encoder]
    decoder = [n for n in hook_names(config.decoder) if not n.startswith("unembed")]
    for name in decoder:
        names.append(f"decoder.{name}")
        if name.endswith(".hook_attn_out"):
            block = f"decoder.{name.rpartition('.')[0]}"
            names += [f"{block}.{inner}" for inner in _across(config.decoder)]
    return [*names, "unembed.hook_in", "unembed.hook_out"]


def _across(config: TransformerConfig) -> list[str]:
    normed = ["hook_scale", "hook_normalized"]
    names = ["hook_resid_cross"]
    if config.normalization != "none":
        names += [f"ln_cross.{n}" for n in normed]
    heads = ["hook_q", "hook_k", "hook_v"]
    if config.qk_normalization != "none":
        heads += [f"{part}.{n}" for part in ("q_norm", "k_norm") for n in normed]
    heads += ["hook_attn_scores", "hook_pattern", "hook_z", "hook_result"]
    return [*names, *(f"cross_attn.{n}" for n in heads), "hook_cross_attn_out"]


def _bare_anatomy(n_layers: int) -> Anatomy:
    """Entries are read by full name: the stream of one stack is no sum over both."""
    return Anatomy(
        n_layers=n_layers,
        has_mlp=False,
        has_mid=False,
        adds_positions=False,
        centres=None,
        centres_at_end=None,
    )
