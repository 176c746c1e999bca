"""σReparam: matrices held at a learned spectral norm, so that attention can't collapse.

    Ŵ = γ / σ(W) · W

with σ(W) the largest singular value, by power iteration, and one trained γ a matrix, 1 at first.
Scores then can't grow but by γ, which bounds the entropy of every row from below.
`interp.train(…, sigma_reparam=True)` trains with it, and saves plain weights.

Source: Zhai et al. 2023, "Stabilizing Transformer Training by Preventing Attention Entropy
Collapse". Here queries, keys and values are one matrix, and share a γ.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from interp.model import Transformer


class _Gain(nn.Module):
    """A trained factor."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, weight: Tensor) -> Tensor:
        return self.gamma * weight


def reparametrise(model: Transformer, *, power_iterations: int = 1, seed: int = 0) -> None:
    """Put σReparam on every matrix of the blocks, in place; train, then `fold` before saving.

    Args:
        model: Its matrices are scaled to a spectral norm of 1, so what it computes changes.
        power_iterations: Steps towards σ in each forward pass in training mode.
        seed: Of the first singular vectors.

    Raises:
        ValueError: It has σReparam already.
    """
    for matrix in _matrices(model):
        if parametrize.is_parametrized(matrix):
            raise ValueError("this model has σReparam already; fold(model) takes it off")
        with torch.random.fork_rng([]):  # the library draws from the global generator
            torch.default_generator.manual_seed(seed)
            spectral_norm(matrix, n_power_iterations=power_iterations)
        parametrize.register_parametrization(matrix, "weight", _Gain())


@contextmanager
def one_iteration(model: Transformer) -> Iterator[None]:
    """Take the power iteration of one pass now, and none inside.

    A step whose batch is run in parts, or whose blocks are run again for their gradients, then has
    the same matrices all through, and moves σ's vectors as far as a step in one piece.
    """
    matrices = list(_matrices(model))
    norms = [cast("Any", matrix).parametrizations.weight[0] for matrix in matrices]
    with torch.no_grad():
        for matrix in matrices:
            _ = matrix.weight  # reading it in training mode takes the iteration
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for matrix, norm in zip(matrices, norms, strict=True):
            norm.train(matrix.training)


def fold(model: Transformer) -> None:
    """Take σReparam off, in place: plain weights that compute the same.

    Raises:
        ValueError: There is none.
    """
    training = model.training
    model.eval()  # otherwise reading a matrix takes another power iteration
    for matrix in _matrices(model):
        if not parametrize.is_parametrized(matrix):
            raise ValueError("this model has no σReparam; reparametrise(model) puts it on")
        parametrize.remove_parametrizations(matrix, "weight")
    model.train(training)


@torch.no_grad()
def folded(model: Transformer) -> Transformer:
    """Another model without σReparam, in eval mode: plain weights that compute the same."""
    training, weight = model.training, model.embed.weight
    model.eval()  # otherwise reading a matrix takes another power iteration
    plain = Transformer.unfilled(model.config, dtype=weight.dtype, device=weight.device).eval()
    kept = {name: x for name, x in model.state_dict().items() if ".parametrizations." not in name}
    for name, module in model.named_modules():
        if parametrize.is_parametrized(module):
            kept[f"{name}.weight"] = module.weight
    plain.load_state_dict(kept)
    model.train(training)
    return plain


def entropy_bound(sigma: float, n_keys: int) -> float:
    """The least entropy, in nats, of a row of `n_keys` scores whose norm is at most `sigma`.

    It is reached by one score against n − 1 equal ones: ln(1 + (T−1)β) + σ√(T(T−1)) β / (1 +
    (T−1)β), with β = exp(−σ√(T/(T−1))).

    Source: Zhai et al. 2023, theorem 3.1.
    """
    if n_keys < 2:
        return 0.0
    beta = math.exp(-sigma * math.sqrt(n_keys / (n_keys - 1)))
    rest = 1 + (n_keys - 1) * beta
    return math.log(rest) + sigma * math.sqrt(n_keys * (n_keys - 1)) * beta / rest


def _matrices(model: Transformer) -> Iterator[nn.Module]:
    for block in model.blocks:
        yield block.attn.qkv
        yield block.attn.o
        if block.mlp is not None:
            yield from (m for m in (block.mlp.up, block.mlp.gate, block.mlp.down) if m is not None)
