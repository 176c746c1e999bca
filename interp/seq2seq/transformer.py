"""The whole encoder–decoder."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.attention import CacheKind, Full, Kernel, Visible, attend, new_cache
from interp.cache import ActivationCache, Anatomy, NamesFilter, names_to_record
from interp.calls import check_tokens, checked_mask
from interp.generate import check_request, check_room, continue_tokens
from interp.hooks import Hooks, Recorder, Tap, resolve
from interp.layers import Block
from interp.names import SPLIT_INPUTS
from interp.seq2seq.architecture import Seq2SeqConfig, seq2seq_names
from interp.seq2seq.cache import Memory, Seq2SeqCache
from interp.seq2seq.refusals import check_cache, check_source
from interp.seq2seq.stacks import DecoderBlock, Slots, Stack
from interp.weights import Linear, initialise


class Seq2SeqTransformer(nn.Module):
    """A hookable encoder–decoder; names are `Transformer`'s under `encoder.` and `decoder.`.

    Cross-attention is `decoder.blocks.{l}.cross_attn`, between `hook_resid_cross` and
    `hook_cross_attn_out`; the end is `unembed.hook_in` and `unembed.hook_out`.
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        if not isinstance(config, Seq2SeqConfig):
            raise TypeError(
                f"wanted a Seq2SeqConfig, got {type(config).__name__}; "
                "of a dict, Seq2SeqConfig.from_dict(it)"
            )
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
        kv_cache: Seq2SeqCache | None = None,
        kernel: Kernel = attend,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits: what should follow each of the decoder's tokens, given the source.

        Args:
            source: What the encoder reads.
            tokens: What the decoder has said.
            source_mask: True where a source token is real.
            mask: True where a token is real.
            hooks: Pairs (name or glob, fn(activation, hook)), run in order.
            kv_cache: What was computed for the source and the tokens so far; these tokens are
                appended. From its second call on, the encoder's activations are not made again.
            kernel: What computes attention, in place of the fused route.

        Raises:
            LookupError: A hook's name matches nothing that this call computes.
            ValueError: Tokens or masks do not fit the model or each other, a source has no real
                token, or the cache is of another source.
            TypeError: Tokens, masks or the cache are of another kind.
        """
        check_cache(self.config, kv_cache)
        filled = kv_cache is not None and kv_cache.memory is not None
        names = seq2seq_names(self.config, encoded=filled)
        tap = Tap(resolve(hooks, names) if hooks else {})
        return self._run(tap, source, tokens, (source_mask, mask), kernel, kv_cache)

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

    def new_kv_cache(self, kind: CacheKind = "contiguous") -> Seq2SeqCache:
        """An empty cache for `model(source, tokens, kv_cache=…)`.

        Args:
            kind: Of the decoder's own keys and values; `interp.attention.CACHES` has the kinds.

        Raises:
            ValueError: There is no such kind.
        """
        rules = [block.attn.rule for block in self.decoder.blocks]
        scales = [self.config.decoder.scale_of(layer) for layer in range(len(rules))]
        return Seq2SeqCache(new_cache(kind, rules, scales=scales))

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
        kv_cache: Seq2SeqCache | None = None,
    ) -> Int[Tensor, "batch longer"]:
        """The decoder's tokens and what it says next, through a KV cache (None: a new one).

        Raises:
            ValueError: It would be longer than the decoder's `n_ctx`, or see `sample`.
        """
        check_tokens(self.config.decoder, tokens)
        check_request(tokens, max_new_tokens)
        check_cache(self.config, kv_cache)
        cache = self.new_kv_cache() if kv_cache is None else kv_cache
        held = cache.own.length + tokens.shape[1]
        check_room(self.config.decoder.n_ctx, held, max_new_tokens, "the decoder's ")
        return continue_tokens(
            lambda chunk: self(source, chunk, source_mask=source_mask, kv_cache=cache),
            tokens,
            max_new_tokens,
            temperature=temperature,
            generator=generator,
        )

    def _run(
        self,
        tap: Tap,
        source: Tensor,
        tokens: Tensor,
        masks: tuple[Tensor | None, Tensor | None],
        kernel: Kernel,
        cache: Seq2SeqCache | None = None,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        check_tokens(self.config.encoder, source)
        check_tokens(self.config.decoder, tokens)
        source_mask, mask = checked_mask(masks[0], source), checked_mask(masks[1], tokens)
        own = None if cache is None else cache.own
        if own is not None:
            own.check_batch(tokens.shape[0])
        check_source(source, source_mask, tokens)
        memory = self._memory(tap.under("encoder"), source, source_mask, kernel, cache)
        inner = tap.under("decoder")
        resid, slots = self.decoder.start(tokens, mask, inner, own)
        where = self.decoder.where(slots, kernel, own)
        visible = _across(slots, memory)
        for layer, block in enumerate(self.decoder.blocks):
            scope = inner.under(f"blocks.{layer}")
            resid = block.between(
                resid, memory.stream, scope, visible=visible, where=where, cache=cache
            )
        if cache is not None:
            real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
            cache.commit(memory, real)
        x = self.decoder.ln_final(resid, inner.under("ln_final"))
        unembed = tap.under("unembed")
        return unembed("hook_out", self.unembed(unembed("hook_in", x)))

    def _memory(
        self,
        tap: Tap,
        source: Tensor,
        mask: Tensor | None,
        kernel: Kernel,
        cache: Seq2SeqCache | None,
    ) -> Memory:
        """What the encoder makes of the source; from a cache, if that has read it."""
        if cache is not None and cache.memory is not None:
            cache.memory.check_is_of(source, mask)
            return cache.memory
        resid, slots = self.encoder.start(source, mask, tap)
        where = self.encoder.where(slots, kernel)
        for layer, block in enumerate(self.encoder.blocks):
            resid = block(resid, tap.under(f"blocks.{layer}"), where)
        return Memory(
            source, mask, self.encoder.ln_final(resid, tap.under("ln_final")), slots.q_pos
        )


def _across(slots: Slots, memory: Memory) -> Visible:
    """Every token of the decoder sees all of the source."""
    plain = slots.real_q is None and memory.mask is None
    return Visible(Full(), slots.q_pos, memory.position, slots.real_q, memory.mask, in_order=plain)


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
