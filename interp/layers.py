"""The parts of a block: heads and an MLP between norms; each offers its activations by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from interp.activations import ACTIVATIONS
from interp.attention import AttentionCall, Kernel, KVCache, Rule, Streaming, Visible
from interp.attention.kernels import pattern_of, scores_of
from interp.attention.positions import Alibi, alibi_slopes, rotate, rotations, sinusoids
from interp.attention.reindexing import StreamingAlibi, by_sinks
from interp.attention.smearing import last_key, smeared
from interp.config import TransformerConfig
from interp.hooks import Tap
from interp.norms import norm_of
from interp.weights import HeadWeights, Linear, MLPWeights


@dataclass(frozen=True)
class Where:
    """What the layers of one call share.

    Attributes:
        visible: Who may see whom, for each rule in the model.
        turn: Rotations at the tokens' positions, or None.
        qk_pos_embed: What is added to the inputs of queries and keys (shortformer), or None.
        kv_cache: Keys and values so far, or None.
        kernel: What computes attention.
        back: For rules that re-index positions, the rotations that turn queries back.
    """

    visible: Mapping[Rule, Visible]
    turn: Float[Tensor, "2 b pos half"] | None
    qk_pos_embed: Float[Tensor, "b pos d_model"] | None
    kv_cache: KVCache | None
    kernel: Kernel
    back: Mapping[Rule, Float[Tensor, "2 b pos half"]] = field(default_factory=dict)

    def with_qk_pos_embed(self, rows: Float[Tensor, "b pos d_model"]) -> "Where":
        """The same, with positions for queries and keys."""
        return replace(self, qk_pos_embed=rows)


@dataclass(frozen=True)
class QKVInputs:
    """What q, k and v are computed from: one normalised stream, or a copy a head for each."""

    merged: Float[Tensor, "batch pos d_model"] | None = None
    split: Sequence[Float[Tensor, "batch pos head d_model"]] | None = None


class Attention(HeadWeights, nn.Module):
    """One layer's heads: a merged QKV product, a kernel, and the heads' writes summed."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer, self.rule = config, layer, config.rule(layer)
        self.n_heads, self.kv_heads, self.d_head = (
            config.n_heads,
            config.kv_heads,
            config.head_width,
        )
        width = self.n_heads * self.d_head
        all_three = width + 2 * self.kv_heads * self.d_head
        self.qkv = Linear(config.d_model, all_three, config.has_bias("qkv"))
        self.o = Linear(width, config.d_model, config.has_bias("o"))
        self.q_norm = norm_of(config, config.qk_normalization, self.d_head)
        self.k_norm = norm_of(config, config.qk_normalization, self.d_head)
        # At 0, a key is half its own and half the previous token's.
        self.smear = nn.Parameter(torch.zeros(self.kv_heads)) if config.smeared_keys else None
        self.sink = nn.Parameter(torch.zeros(self.n_heads)) if config.sink_logits else None
        self.position_bias = position_bias(config, self.rule)

    def forward(
        self, inputs: QKVInputs, tap: Tap, where: Where
    ) -> Float[Tensor, "batch pos d_model"]:
        """What the heads write together."""
        q, k, v = (
            tap(f"hook_{n}", x) for n, x in zip("qkv", self._project(inputs, where), strict=True)
        )
        q, k = self.q_norm(q, tap.under("q_norm")), self.k_norm(k, tap.under("k_norm"))
        k = self._smeared(k, where)
        if where.turn is not None:
            interleaved = self.config.rotary_interleaved
            q = tap("hook_rot_q", rotate(q, where.turn, interleaved=interleaved))
            k = tap("hook_rot_k", rotate(k, where.turn, interleaved=interleaved))
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        if where.kv_cache is not None:
            k, v = where.kv_cache.extend(self.layer, k, v)
        call = self.call(q.transpose(1, 2), k, v, where.visible[self.rule])
        if self.rule in where.back:
            call = self._reindexed(call, q, where.back[self.rule])
        if where.kv_cache is not None:
            call = replace(call, past=where.kv_cache.past_of(self.layer))
        if tap.active:
            self._leave_recipes(call, tap)
        z = tap("hook_z", where.kernel(call, tap).transpose(1, 2))
        return self._write(z, tap)

    def call(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> AttentionCall:
        """This layer's attention, for a kernel."""
        cap, scale = self.config.score_soft_cap, self.config.scale_of(self.layer)
        return AttentionCall(
            q, k, v, visible, scale, self.position_bias, cap, self.layer, self.sink
        )

    def _reindexed(self, call: AttentionCall, q: Tensor, back: Tensor) -> AttentionCall:
        assert isinstance(self.rule, Streaming)
        turned = rotate(q, back, interleaved=self.config.rotary_interleaved)
        return by_sinks(call, turned.transpose(1, 2), self.rule.sinks)

    def _smeared(self, k: Tensor, where: Where) -> Tensor:
        if self.smear is None:
            return k
        before, real = None, where.visible[self.rule].real_q
        if where.kv_cache is not None:
            before = where.kv_cache.last_key(self.layer)
            where.kv_cache.keep_last_key(self.layer, last_key(k, before=before, real=real))
        return smeared(k, self.smear.sigmoid(), before=before, real=real)

    def _project(self, inputs: QKVInputs, where: Where) -> Sequence[Tensor]:
        sizes = [self.n_heads, self.kv_heads, self.kv_heads]
        if inputs.split is not None:
            return self._project_split(inputs.split, where)
        merged = self.qkv(inputs.merged).unflatten(-1, (-1, self.d_head))
        if where.qk_pos_embed is not None:
            n = self.n_heads + self.kv_heads
            moved = F.linear(where.qk_pos_embed, self.qkv.weight[: n * self.d_head])
            moved = F.pad(moved, (0, self.kv_heads * self.d_head))
            merged = merged + moved.unflatten(-1, (-1, self.d_head))
        # One backward for all three. "Unsafe" parts may be written to: nobody else has `merged`.
        return torch.unsafe_split_with_sizes(merged, sizes, 2)

    def _project_split(self, split: Sequence[Tensor], where: Where) -> list[Tensor]:
        """One input a head: [B T head D] for q, k and v each."""
        projected = []
        for n, (x, (weight, bias)) in enumerate(zip(split, self._qkv_parts(), strict=True)):
            if where.qk_pos_embed is not None and n < 2:
                x = x + where.qk_pos_embed[:, :, None]
            out = torch.einsum("bthd,hed->bthe", x, weight)
            projected.append(out if bias is None else out + bias)
        return projected

    def _qkv_parts(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        sizes = [self.n_heads, self.kv_heads, self.kv_heads]
        weight = self.qkv.weight.unflatten(0, (-1, self.d_head)).split(sizes)
        if self.qkv.bias is None:
            yield from ((w, None) for w in weight)
        else:
            bias = self.qkv.bias.unflatten(0, (-1, self.d_head)).split(sizes)
            yield from zip(weight, bias, strict=True)

    def _leave_recipes(self, call: AttentionCall, tap: Tap) -> None:
        call = replace(call, q=tap.held(call.q), k=tap.held(call.k), v=tap.held(call.v))
        tap.later("hook_attn_scores", lambda: scores_of(call))
        tap.later("hook_pattern", lambda: pattern_of(call).to(call.v.dtype))

    def _write(self, z: Float[Tensor, "batch pos head d_head"], tap: Tap) -> Tensor:
        if tap.wants("hook_result"):
            result = tap("hook_result", torch.einsum("bthe,dhe->bthd", z, self._out()))
            total = result.sum(2)
            return total if self.o.bias is None else total + self.o.bias
        if tap.records("hook_result"):
            weight, held = tap.held(self._out().clone()), tap.held(z)
            tap.later("hook_result", lambda: torch.einsum("bthe,dhe->bthd", held, weight))
        return self.o(z.flatten(-2))

    def _out(self) -> Float[Tensor, "d_model head d_head"]:
        return self.o.weight.unflatten(1, (-1, self.d_head))


class MLP(MLPWeights, nn.Module):
    """act(x W_in + b_in) W_out + b_out.

    Gated: (act(x W_gate + b_gate) · (x W_in + b_in)) W_out + b_out, with b_gate only where named.
    """

    def __init__(self, config: TransformerConfig, d_mlp: int) -> None:
        super().__init__()
        self.act = ACTIVATIONS[config.activation]
        bias, gate_bias = config.has_bias("mlp"), config.has_bias("gate")
        self.up = Linear(config.d_model, d_mlp, bias)
        self.gate = Linear(config.d_model, d_mlp, gate_bias) if config.gated_mlp else None
        self.down = Linear(d_mlp, config.d_model, bias)
        self.ln = norm_of(config, config.mlp_normalization, d_mlp)

    def forward(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Tensor:
        """What the MLP writes; `hook_pre` is before the activation, `hook_pre_linear` beside it.

        Where the activation is normalised, `hook_mid` is before that, `hook_post` behind.
        """
        if self.gate is None:
            post = self.act(tap("hook_pre", self.up(x)))
            if self.ln.kind != "none":
                post = self.ln(tap("hook_mid", post), tap.under("ln"))
            return self.down(tap("hook_post", post))
        pre = tap("hook_pre", self.gate(x))
        linear = tap("hook_pre_linear", self.up(x))
        return self.down(tap("hook_post", self.act(pre) * linear))


class Block(nn.Module):
    """Attention, then an MLP if there is one; each reads a normalised residual stream, and adds.

    With `parallel`, both read what enters the block (GPT-J, Wang & Komatsuzaki 2021).
    """

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        kind, after = config.normalization, config.post_normalization
        self.parallel = config.parallel
        self.ln1, self.attn = norm_of(config, kind), Attention(config, layer)
        self.ln1_post, self.ln2_post = norm_of(config, after), None
        self.ln2, self.mlp = None, None
        if config.d_mlp is not None:
            self.ln2, self.mlp = norm_of(config, kind), MLP(config, config.d_mlp)
            self.ln2_post = norm_of(config, after)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

    def forward(
        self, resid: Float[Tensor, "batch pos d_model"], tap: Tap, where: Where
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after this block."""
        resid = tap("hook_resid_pre", resid)
        written = self.attn(self._qkv_inputs(resid, tap), tap.under("attn"), where)
        written = self.dropout(self.ln1_post(written, tap.under("ln1_post")))
        attended = resid + tap("hook_attn_out", written)
        if self.mlp is None:
            return tap("hook_resid_post", attended)
        if not self.parallel:
            attended = resid = tap("hook_resid_mid", attended)
        return tap("hook_resid_post", attended + tap("hook_mlp_out", self._mlp_out(resid, tap)))

    def _mlp_out(self, resid: Tensor, tap: Tap) -> Tensor:
        assert self.mlp is not None
        assert self.ln2 is not None
        assert self.ln2_post is not None
        x = self.ln2(self._mlp_input(resid, tap), tap.under("ln2"))
        written = self.ln2_post(self.mlp(x, tap.under("mlp")), tap.under("ln2_post"))
        return self.dropout(written)

    def _mlp_input(self, resid: Tensor, tap: Tap) -> Tensor:
        if tap.wants("hook_mlp_in"):
            return tap("hook_mlp_in", resid.clone())
        held = tap.held(resid)
        tap.later("hook_mlp_in", lambda: held)
        return resid

    def _qkv_inputs(self, resid: Tensor, tap: Tap) -> QKVInputs:
        """One stream for all, unless a hook asks for a copy a head."""
        ln1, heads = tap.under("ln1"), (self.attn.n_heads, self.attn.kv_heads, self.attn.kv_heads)
        if not tap.wants("hook_attn_in", *_SPLIT):
            if tap.active:
                held = tap.held(resid)
                tap.later("hook_attn_in", lambda: _per_head(held, heads[0]))
                for name, n in zip(_SPLIT, heads, strict=True):
                    tap.later(name, lambda n=n: _per_head(held, n))
            return QKVInputs(merged=self.ln1(resid, ln1))
        x = tap("hook_attn_in", _per_head(resid, heads[0]))
        inputs = [tap(name, x[:, :, :n].clone()) for name, n in zip(_SPLIT, heads, strict=True)]
        return QKVInputs(split=[self.ln1(part, ln1) for part in inputs])


_SPLIT = ("hook_q_input", "hook_k_input", "hook_v_input")


def _per_head(
    resid: Float[Tensor, "batch pos d_model"], n: int
) -> Float[Tensor, "batch pos {n} d_model"]:
    return resid[:, :, None].repeat(1, 1, n, 1)


def position_bias(config: TransformerConfig, rule: Rule) -> Alibi | StreamingAlibi | None:
    """What is added to a layer's scores by distance, or None."""
    if config.positional != "alibi":
        return None
    slopes = config.alibi_slopes or tuple(alibi_slopes(config.n_heads))
    if isinstance(rule, Streaming) and rule.positions == "cache":
        return StreamingAlibi(slopes, rule)
    return Alibi(slopes)


def position_table(config: TransformerConfig) -> Tensor | None:
    """Sinusoids [n_ctx D] or rotations [2 n_ctx half], where the model has either."""
    if config.positional == "sinusoidal":
        return sinusoids(config.n_ctx, config.d_model)
    if config.positional == "rotary":
        turned = config.rotary_dim or config.head_width
        return rotations(config.n_ctx, turned, config.rotary_base, config.rotary_scaling)
    return None
