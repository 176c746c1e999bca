"""The whole encoder–decoder."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.attention import Full, Kernel, Visible, attend
from interp.cache import ActivationCache, Anatomy, NamesFilter, names_to_record
from interp.calls import checked_mask
from interp.generate import sample
from interp.hooks import Hooks, Recorder, Tap, resolve
from interp.layers import Block
from interp.names import SPLIT_INPUTS
from interp.seq2seq.architecture import Seq2SeqConfig, seq2seq_names
from interp.seq2seq.stacks import DecoderBlock, Stack
from interp.weights import Linear, initialise


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
