"""Statistics of a pattern the plain way: the whole pattern, in float64."""

import torch
from torch import Tensor


def scores(q, k, *, seen, scale, bias=None, soft_cap=None) -> Tensor:
    """[B H Tq Tk] in float64, −inf where `seen` is False; without the library."""
    q, k = q.double(), k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    s = q @ k.mT * scale
    if soft_cap is not None:
        s = soft_cap * (s / soft_cap).tanh()
    if bias is not None:
        s = s + bias.double()
    return s.masked_fill(~seen, -torch.inf)


def pattern(s: Tensor) -> Tensor:
    """Softmax with rows of zeros where nothing is seen."""
    empty = (s == -torch.inf).all(-1, keepdim=True)
    return s.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)


def entropy(p: Tensor) -> Tensor:
    """Nats of each row."""
    return -torch.special.xlogy(p, p).sum(-1)


def causal(n_q: int, n_k: int) -> Tensor:
    """Aligned at the bottom right."""
    return torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)
