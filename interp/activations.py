"""The nonlinearities of MLPs, by the names that configs use."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def solu(x: Float[Tensor, "*batch d_mlp"]) -> Float[Tensor, "*batch d_mlp"]:
    """X · softmax(x), without the norm that may follow it.

    Source: Elhage et al. 2022, "Softmax Linear Units".
    """
    return x * x.softmax(-1)


def quick_gelu(x: Tensor) -> Tensor:
    """X · σ(1.702 x). Source: Hendrycks & Gimpel 2016."""
    return x * torch.sigmoid(1.702 * x)


def squared_relu(x: Tensor) -> Tensor:
    """relu(x)². Source: So et al. 2021, "Primer"."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "squared_relu": squared_relu,
    "silu": F.silu,
    "solu": solu,
    "tanh": torch.tanh,
}
"""Nonlinearities by the name that `TransformerConfig.activation` takes."""
