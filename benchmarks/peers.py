"""The same transformer four times: bare PyTorch, ours, TransformerLens's and Hugging Face's.

Pre-LN, learned positions, biases, an MLP of 4·d with erf-GELU. Weights are drawn once, for the
bare model, and copied to the others, which must then give the same logits.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

import interp


@dataclass(frozen=True)
class Size:
    """Sizes of a model and of the batch it is given."""

    n_layers: int
    n_heads: int
    d_model: int
    d_vocab: int
    n_ctx: int
    batch: int

    def __str__(self) -> str:
        """Layers, width, length and batch: what the tables call it."""
        return f"L{self.n_layers} d{self.d_model} n{self.n_ctx} B{self.batch}"

    def tokens(self, generator: torch.Generator) -> Int[Tensor, "batch pos"]:
        """Uniform random tokens."""
        return torch.randint(self.d_vocab, (self.batch, self.n_ctx), generator=generator)


class BareBlock(nn.Module):
    """One pre-LN block, as short as PyTorch allows."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        d = size.d_model
        self.n_heads = size.n_heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm2, self.up, self.down = (
            nn.LayerNorm(d),
            nn.Linear(d, 4 * d),
            nn.Linear(4 * d, d),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after this block."""
        b, n, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, n, 3, self.n_heads, d // self.n_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Bare(nn.Module):
    """A transformer that nobody can look into: what speed is measured against."""

    def __init__(self, size: Size, generator: torch.Generator) -> None:
        super().__init__()
        self.size = size
        self.embed = nn.Embedding(size.d_vocab, size.d_model)
        self.positions = nn.Embedding(size.n_ctx, size.d_model)
        self.blocks = nn.ModuleList(BareBlock(size) for _ in range(size.n_layers))
        self.norm = nn.LayerNorm(size.d_model)
        self.unembed = nn.Linear(size.d_model, size.d_vocab)
        _draw_weights(self, generator)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits."""
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.norm(x))


def _draw_weights(bare: Bare, generator: torch.Generator) -> None:
    """Weights at a sensible scale; biases and gains that differ from 0 and 1, so copies show.

    The unembedding's bias stays 0: neither TransformerLens's native model nor GPT-2 has one.
    """
    with torch.no_grad():
        for name, p in bare.named_parameters():
            if p.dim() == 2:
                p.normal_(std=p.shape[1] ** -0.5, generator=generator)
            else:
                p.normal_(std=0.1, generator=generator)
                p.add_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        bare.unembed.bias.zero_()


def ours(bare: Bare) -> interp.Transformer:
    """`interp.Transformer` with the weights of `bare`."""
    size = bare.size
    config = interp.TransformerConfig(
        n_layers=size.n_layers, n_heads=size.n_heads, d_model=size.d_model,
        d_vocab=size.d_vocab, n_ctx=size.n_ctx, d_mlp=4 * size.d_model, activation="gelu",
    )  # fmt: skip
    model = interp.Transformer(config).eval()
    model.load_state_dict(_renamed(bare, OURS))
    return model


def transformer_lens(bare: Bare) -> nn.Module:
    """TransformerLens 4's `TransformerBridge.boot_native` with the weights of `bare`."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources import native

    size = bare.size
    config = TransformerBridgeConfig(
        n_layers=size.n_layers, n_heads=size.n_heads, d_model=size.d_model,
        d_head=size.d_model // size.n_heads, d_mlp=4 * size.d_model, act_fn="gelu",
        d_vocab=size.d_vocab, n_ctx=size.n_ctx, normalization_type="LN", seed=0,
    )  # fmt: skip
    bridge = native.boot(config).eval()
    weights = _renamed(bare, NATIVE)
    for name in [name for name in weights if "qkv" in name]:
        for part, weight in zip("qkv", weights.pop(name).chunk(3), strict=True):
            weights[name.replace("qkv", part)] = weight
    bridge.load_state_dict(weights)
    return bridge


def hugging_face(bare: Bare, *, attention: str = "eager") -> nn.Module:
    """Hugging Face's GPT-2 with the weights of `bare`; `attention` is its implementation."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = bare.size
    config = GPT2Config(
        n_layer=size.n_layers, n_head=size.n_heads, n_embd=size.d_model, vocab_size=size.d_vocab,
        n_positions=size.n_ctx, activation_function="gelu", tie_word_embeddings=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation=attention,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng():  # its weights are overwritten: no need to disturb anybody
        model = GPT2LMHeadModel(config).eval()
    weights = _renamed(bare, GPT2)
    weights.pop("lm_head.bias")
    for name in [name for name in weights if ".c_" in name and name.endswith("weight")]:
        weights[name] = weights[name].T  # its linear layers hold them the other way round
    model.load_state_dict(weights)
    return model


def _renamed(bare: Bare, names: dict[str, str]) -> dict[str, Tensor]:
    """Copies of the weights, each part of their names as another model calls it."""
    return {
        ".".join(names.get(part, part) for part in name.split(".")): weight.clone()
        for name, weight in bare.state_dict().items()
    }


OURS = {
    "positions": "pos_embed", "norm": "ln_final",
    "norm1": "ln1", "qkv": "attn.qkv", "out": "attn.o",
    "norm2": "ln2", "up": "mlp.up", "down": "mlp.down",
}  # fmt: skip
NATIVE = {
    "embed": "tok_embed", "positions": "pos", "blocks": "layers", "norm": "ln_out",
    "unembed": "head", "norm1": "ln1", "qkv": "attn.qkv", "out": "attn.o",
    "norm2": "ln2", "up": "mlp.in", "down": "mlp.out",
}  # fmt: skip
GPT2 = {
    "embed": "transformer.wte", "positions": "transformer.wpe", "blocks": "transformer.h",
    "norm": "transformer.ln_f", "unembed": "lm_head",
    "norm1": "ln_1", "qkv": "attn.c_attn", "out": "attn.c_proj",
    "norm2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj",
}  # fmt: skip


@torch.no_grad()
def assert_same_logits(bare: Bare, others: dict[str, nn.Module], *, tokens: Tensor) -> None:
    """Refuse to compare models that do not compute the same.

    Raises:
        AssertionError: Logits (of size 1) differ by 1e-3, more than float32 sums in another
            order explain.
    """
    wanted = bare(tokens)
    for name, model in others.items():
        got = model(tokens)
        got = got if isinstance(got, Tensor) else got.logits
        off = (got - wanted).abs().max().item()
        if not off < 1e-3:  # NaN is not
            raise AssertionError(f"{name} is off the bare model's logits by {off:.2g}")
