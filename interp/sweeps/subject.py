"""What experiments must know of a model of either kind, and how it is left as it was found."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import index
from typing import Any

import torch
from torch import nn

from interp.attention.features import Featured
from interp.interop import Observed
from interp.model import Transformer


@contextmanager
def evaluating(model: object, *, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode and no gradients inside the block; every module's mode is put back."""
    inner = model.module if isinstance(model, Observed) else model
    modules = inner.modules() if isinstance(inner, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        for module in training:
            module.training = True


def whole_pairs(given: Any, *, name: str = "heads") -> list[tuple[int, int]]:
    """Pairs (layer, head) that a caller names, each of two whole numbers; none is rounded.

    Raises:
        TypeError: It is no list, or something in a pair is no whole number.
        ValueError: Something in it is not a pair.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | dict):
        raise TypeError(f"{name} are a list of pairs [(layer, head), …], got {given!r}")
    return [whole_pair(pair, name) for pair in given]


def whole_pair(pair: Any, name: str) -> tuple[int, int]:
    """One of them."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise ValueError(f"{name}: wanted pairs (layer, head), got {pair!r}")
    try:
        if any(isinstance(n, bool) or getattr(n, "dtype", None) == torch.bool for n in pair):
            raise TypeError("True and False number no head")
        return index(pair[0]), index(pair[1])
    except TypeError as error:
        raise TypeError(
            f"{name}: layer and head are whole numbers, 0 is the first; got {tuple(pair)!r}"
        ) from error


def key_value_heads(model: Any) -> int:
    """Key/value heads of a layer."""
    return model.config.n_kv_heads if isinstance(model, Observed) else model.config.kv_heads


def check_runnable(model: Any) -> None:
    """Refuse what is no model of either kind.

    Raises:
        TypeError: It is neither a `Transformer` nor wrapped.
    """
    if not isinstance(model, Transformer | Observed):
        raise TypeError(
            "wanted an interp.Transformer, or what interp.wrap(model) makes of a model of another "
            f"library; got {type(model).__name__}"
        )


def has_mlps(model: Any) -> bool:
    """Whether blocks have MLPs; of a wrapped model, that is taken for granted."""
    return not isinstance(model, Transformer) or model.config.d_mlp is not None


def scores_follow_queries(model: Any, layer: int) -> bool:
    """Whether a query of 0 scores 0 at every key: no bias by distance, norm with a bias, feature.

    Of a wrapped model that is not known.
    """
    if not isinstance(model, Transformer):
        return False
    config = model.config
    plain = config.positional != "alibi" and "layer_norm" not in config.qk_normalization
    return plain and not isinstance(config.rule(layer), Featured)


def widest(model: Any) -> int:
    """The widest activation of a token, in numbers."""
    config = model.config
    d_mlp = config.d_mlp if isinstance(model, Transformer) else 4 * config.d_model
    return max(config.d_vocab, 4 * config.d_model, d_mlp or 0)
