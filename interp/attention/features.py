"""Attention whose weights are φ(q)·φ(k): a sum over keys that a matrix remembers.

With φ in place of exp(q·k), `Σ_j φ(q)·φ(k_j) v_j = φ(q)·(Σ_j φ(k_j) v_jᵀ)`: the sum over the past
is a state of fixed size, and a token costs the same at any length. Values carry a column of ones,
so that the normaliser is one more column of the state.

Source: Katharopoulos et al. 2020, "Transformers are RNNs". They add 1e-6 to the normaliser; here
weights sum to 1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64
"""Tokens whose weights among each other are spelled out."""


@dataclass(frozen=True)
class Featured:
    """A rule whose attention is not softmax: weights are φ(q)·φ(k), normalised over visible keys.

    Attributes:
        causal: A token sees itself and all before it; otherwise everything.
    """

    causal: bool = True

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True at and before the query, or everywhere."""
        seen = k_pos <= q_pos
        return seen if self.causal else torch.ones_like(seen)

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """As many as there are up to the query's own, or all."""
        visible = torch.minimum(q_pos + 1, n_keys).clamp(min=0)
        return visible if self.causal else n_keys.expand_as(visible)

    @property
    def positive(self) -> bool:
        """Whether features are never negative, so that weights are a distribution."""
        return True

    def of_queries(
        self, q: Float[Tensor, "*batch d_head"], scale: float
    ) -> Float[Tensor, "*batch feature"]:
        """φ(q), up to a factor for each query."""
        raise TypeError(f"{type(self).__name__} names no features")

    def of_keys(
        self, k: Float[Tensor, "*batch d_head"], scale: float
    ) -> Float[Tensor, "*batch feature"]:
        """φ(k), up to one factor for all keys."""
        raise TypeError(f"{type(self).__name__} names no features")


State = Float[Tensor, "batch head feature d_value_and_1"]
"""Σ φ(k_j) [v_j, 1]ᵀ over the keys so far."""


def quadratic(
    q: Float[Tensor, "batch head n feature"],
    k: Float[Tensor, "batch head n feature"],
    v: Float[Tensor, "batch head n d_value"],
) -> Float[Tensor, "batch head n d_value"]:
    """Causal attention of features by the n×n definition."""
    return normalised((q @ k.mT).tril() @ with_ones(v))


def recurrent(
    q: Float[Tensor, "batch head n feature"],
    k: Float[Tensor, "batch head n feature"],
    v: Float[Tensor, "batch head n d_value"],
) -> Float[Tensor, "batch head n d_value"]:
    """The same, token by token: what is remembered is one matrix a head."""
    state, v = torch.zeros(()), with_ones(v)
    rows = []
    for t in range(q.shape[2]):
        state = state + k[:, :, t, :, None] * v[:, :, t, None]
        rows.append((q[:, :, t, None] @ state)[:, :, 0])
    return normalised(torch.stack(rows, 2))


def chunked(
    q: Float[Tensor, "batch head n feature"],
    k: Float[Tensor, "batch head n feature"],
    v: Float[Tensor, "batch head n d_value"],
) -> Float[Tensor, "batch head n d_value"]:
    """The same, `CHUNK` tokens at a time, all chunks at once."""
    v = with_ones(v)
    mixed, _ = sums_of_chunks(q, k, v, state=None)
    return normalised(mixed)


def sums_of_chunks(
    q: Tensor, k: Tensor, v: Tensor, *, state: State | None
) -> tuple[Float[Tensor, "batch head n d_value_and_1"], State]:
    """Unnormalised sums of one segment behind `state`, and the state after it."""
    n, size = q.shape[2], min(CHUNK, q.shape[2])
    q, k, v = (F.pad(x, (0, 0, 0, -n % size)).unflatten(2, (-1, size)) for x in (q, k, v))
    each = k.mT @ v  # [batch head chunk feature d]
    upto = each.cumsum(2) if state is None else each.cumsum(2) + state[:, :, None]
    mixed = q @ (upto - each) + (q @ k.mT).tril() @ v
    return mixed.flatten(2, 3)[:, :, :n], upto[:, :, -1]


def with_ones(v: Float[Tensor, "*batch d_value"]) -> Float[Tensor, "*batch d_value_and_1"]:
    """Values with a column of ones behind them."""
    return F.pad(v, (0, 1), value=1.0)


def normalised(mixed: Float[Tensor, "*batch d_value_and_1"]) -> Float[Tensor, "*batch d_value"]:
    """Divide by the last column; a row that saw nothing is zeros."""
    total = mixed[..., -1:]
    return mixed[..., :-1] / total.masked_fill(total == 0, 1.0)
