"""Modular addition by Fourier components: how much of the logits is cos and sin of w(a + b).

Source: Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability". The
frequencies are w = 2πk/p, k = 1 … (p − 1)/2. Losses are taken in float64: in float32 a log-softmax
can't say less than 1.2e-7.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.hooks import Hooks
from interp.model import Transformer


@torch.no_grad()
def logits_of_pairs(
    model: Transformer, p: int, *, equals: int | None = None, hooks: Hooks = ()
) -> Float[Tensor, "a b c"]:
    """The logits of every answer c to every pair a, b, at the last position, as float64.

    Args:
        model: It was trained on pairs of the tokens 0 … p − 1.
        p: The modulus; an odd number.
        equals: The token that comes after a and b. None: none does.
        hooks: Interventions to run the model under.
    """
    _check_modulus(p)
    numbers = torch.arange(p, device=next(model.parameters()).device)
    pairs = torch.cartesian_prod(numbers, numbers)
    if equals is not None:
        pairs = torch.cat([pairs, torch.full_like(pairs[:, :1], equals)], 1)
    return model(pairs, hooks=hooks)[:, -1, :p].double().reshape(p, p, p)


def sums(p: int) -> Int[Tensor, "a b"]:
    """The answers: (a + b) mod p."""
    numbers = torch.arange(p)
    return (numbers[:, None] + numbers) % p


def waves(p: int) -> Float[Tensor, "k two a b"]:
    """Cos w(a + b) and sin w(a + b) over all pairs, of length 1, for k = 1 … (p − 1)/2.

    These are orthogonal to each other and to a constant.
    """
    _check_modulus(p)
    k = torch.arange(1, (p - 1) // 2 + 1, dtype=torch.float64)
    angle = 2 * math.pi * k[:, None, None] * sums(p) / p
    return torch.stack([angle.cos(), angle.sin()], 1) * (math.sqrt(2) / p)


def shares(logits: Float[Tensor, "a b c"]) -> Float[Tensor, " k"]:
    """The share of the logits' variance over pairs that each frequency's two waves make up.

    Every class's mean over pairs is left out. Their sum is 1 if the logits are a function of
    a + b for each c, and near 1/p for logits of random numbers.
    """
    spread = logits.double() - logits.double().mean((0, 1))
    found = torch.einsum("ktab,abc->ktc", waves(len(logits)), spread)
    return found.square().sum((1, 2)) / spread.square().sum()


def key_frequencies(logits: Float[Tensor, "a b c"], *, least: float = 0.02) -> list[int]:
    """The frequencies k with at least that share of the logits' variance, the largest first.

    The paper reads them off the weights of a trained model; in ours no share lies near `least`.
    """
    found = shares(logits)
    order = found.argsort(descending=True).tolist()
    return [k + 1 for k in order if found[k] >= least]


def embedding_norms(
    embedding: Float[Tensor, "number d_model"],
) -> Float[Tensor, " k"]:
    """The length of the embedding's cos and sin components of each frequency, together."""
    p = len(embedding)
    _check_modulus(p)
    k = torch.arange(1, (p - 1) // 2 + 1, dtype=torch.float64)
    angle = 2 * math.pi * k[:, None] * torch.arange(p) / p
    basis = torch.stack([angle.cos(), angle.sin()], 1) * math.sqrt(2 / p)
    return torch.einsum("ktn,nd->ktd", basis, embedding.double()).norm(dim=(1, 2))


def restricted_loss(logits: Float[Tensor, "a b c"], keys: Sequence[int]) -> float:
    """The loss, over all pairs, of the key frequencies' waves alone, in nats.

    Kept beside them is the mean over pairs of what is removed, for each class. Low as soon as
    the waves give the answer, whatever else the logits hold.
    """
    logits = logits.double()
    kept = _components(logits, keys)
    return _loss(kept + (logits - kept).mean((0, 1)))


def excluded_loss(
    logits: Float[Tensor, "a b c"],
    keys: Sequence[int],
    *,
    pairs: Bool[Tensor, "a b"] | None = None,
) -> float:
    """The loss without the key frequencies' waves, in nats.

    Low while the answers are memorised in other ways, ln p or more where the waves were all
    there is. The published code takes one key at a time, on the training pairs.

    Args:
        logits: Of all pairs.
        keys: Frequencies to take out.
        pairs: Which pairs count. None: all.
    """
    logits = logits.double()
    return _loss(logits - _components(logits, keys), pairs)


def _components(logits: Tensor, keys: Sequence[int]) -> Float[Tensor, "a b c"]:
    """The projection of each class's logits on the waves of some frequencies."""
    highest = (len(logits) - 1) // 2
    if not all(1 <= k <= highest for k in keys):
        raise ValueError(f"frequencies lie from 1 to {highest}, got {list(keys)}")
    basis = waves(len(logits))[[k - 1 for k in keys]].flatten(0, 1)
    return torch.einsum("wab,wc->abc", basis, torch.einsum("wab,abc->wc", basis, logits))


def _loss(logits: Tensor, pairs: Tensor | None = None) -> float:
    p = len(logits)
    losses = F.cross_entropy(logits.flatten(0, 1), sums(p).flatten(), reduction="none")
    return float(losses.mean() if pairs is None else losses[pairs.flatten()].mean())


def _check_modulus(p: int) -> None:
    if p < 3 or p % 2 == 0:
        raise ValueError(f"the modulus p is an odd number of 3 or more, got {p}")
