"""Models whose heads are known, because their weights are set by hand.

Two attention-only layers, no norm, no biases. The residual stream has four parts: the token
(one-hot), the position (one-hot), the token before (what a previous-token head writes), and what
is read out as logits. Scores differ by `SHARP` or not at all, so that weights are exactly 0 or 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp import Transformer, TransformerConfig

SHARP = 300.0  # e^−300 is 0 in float32


@dataclass(frozen=True)
class Space:
    """Where in the residual stream, and in a head, things stand."""

    n_tokens: int
    n_ctx: int

    @property
    def width(self) -> int:
        return 3 * self.n_tokens + self.n_ctx

    @property
    def d_head(self) -> int:
        return self.n_tokens + self.n_ctx + 1

    @property
    def token(self) -> Tensor:
        return torch.arange(self.n_tokens)

    @property
    def pos(self) -> Tensor:
        return self.n_tokens + torch.arange(self.n_ctx)

    @property
    def before(self) -> Tensor:
        return self.n_tokens + self.n_ctx + self.token

    @property
    def out(self) -> Tensor:
        return self.before + self.n_tokens

    @property
    def head_pos(self) -> Tensor:
        return self.n_tokens + torch.arange(self.n_ctx)

    @property
    def const(self) -> int:
        return self.d_head - 1


@dataclass
class Head:
    """One head's matrices, to be written to."""

    Q: Tensor
    K: Tensor
    V: Tensor
    O: Tensor  # noqa: E741  (the field's name for it)


Set = Callable[[Head, Space], None]


def look_back(distance: int) -> Set:
    """Attend `distance` tokens back, whatever they are; on the first where there is none."""

    def set_weights(head: Head, at: Space) -> None:
        for i in range(at.n_ctx):
            head.Q[at.pos[i], at.head_pos[max(0, i - distance)]] = SHARP
        head.K[at.pos, at.head_pos] = 1.0

    return set_weights


def previous(head: Head, at: Space) -> None:
    """Attend to the token before, and write down which it is."""
    look_back(1)(head, at)
    head.V[at.token, at.token] = 1.0
    head.O[at.token, at.before] = 1.0


def uniform(head: Head, at: Space) -> None:
    """Attend to all keys alike."""


def sink(head: Head, at: Space) -> None:
    """Attend to the first token."""
    head.Q[at.pos, at.const] = SHARP
    head.K[at.pos[0], at.const] = 1.0


def _resting(head: Head, at: Space) -> None:
    """Where nothing matches, attend to the first token."""
    head.Q[at.pos, at.const] = SHARP / 2
    head.K[at.pos[0], at.const] = 1.0


def _induction_pattern(head: Head, at: Space) -> None:
    _resting(head, at)
    head.Q[at.token, at.token] = SHARP
    head.K[at.before, at.token] = 1.0
    head.V[at.token, at.token] = 1.0


def induction(head: Head, at: Space) -> None:
    """Attend to what followed the token before, and say it again (needs a previous-token head)."""
    _induction_pattern(head, at)
    head.O[at.token, at.out] = 1.0


def anti_induction(head: Head, at: Space) -> None:
    """Attend likewise, and say that it is not what follows."""
    _induction_pattern(head, at)
    head.O[at.token, at.out] = -1.0


def mute_induction(head: Head, at: Space) -> None:
    """Attend likewise, and write nothing."""
    _induction_pattern(head, at)


def duplicate(head: Head, at: Space) -> None:
    """Attend to earlier occurrences of the same token, not to itself."""
    _resting(head, at)
    head.Q[at.token, at.token] = SHARP
    head.K[at.token, at.token] = 1.0
    head.Q[at.pos, at.head_pos] = -SHARP
    head.K[at.pos, at.head_pos] = 1.0


def copying_look_back(distance: int) -> Set:
    """Attend `distance` tokens back, and say what stands there: induction at one period only."""

    def set_weights(head: Head, at: Space) -> None:
        look_back(distance)(head, at)
        head.V[at.token, at.token] = 1.0
        head.O[at.token, at.out] = 1.0

    return set_weights


def model(
    first: Sequence[Set] = (previous, sink),
    second: Sequence[Set] = (induction, duplicate),
    *,
    n_tokens: int = 20,
    n_ctx: int = 40,
    bos: bool = True,
) -> Transformer:
    """A model with these heads in its two layers; BOS is the last token."""
    at = Space(n_tokens, n_ctx)
    config = TransformerConfig(
        n_layers=2,
        n_heads=len(first),
        d_model=at.width,
        d_head=at.d_head,
        d_vocab=n_tokens,
        n_ctx=n_ctx,
        normalization="none",
        attention_scale=1.0,
        bias=False,
        bos_token=n_tokens - 1 if bos else None,
    )
    made = Transformer(config).eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.zero_()
    made.W_E[:, at.token] = torch.eye(n_tokens)
    made.W_pos[:, at.pos] = torch.eye(n_ctx)
    made.W_U[at.out] = torch.eye(n_tokens)
    for layer, heads in enumerate((first, second)):
        attn = made.blocks[layer].attn
        for h, set_weights in enumerate(heads):
            set_weights(Head(attn.W_Q[h], attn.W_K[h], attn.W_V[h], attn.W_O[h]), at)
    return made


def repeated(
    period: int, *, n: int = 4, blocks: int = 3, n_tokens: int = 20, seed: int = 0
) -> Tensor:
    """BOS and a block of distinct random tokens, repeated."""
    g = torch.Generator().manual_seed(0)
    block = torch.rand(n, n_tokens - 1, generator=g).argsort(-1)[:, :period]
    return torch.cat([torch.full((n, 1), n_tokens - 1), block.repeat(1, blocks)], 1)
