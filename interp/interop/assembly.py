"""A Transformer out of somebody else's tensors: every weight written once, none left as drawn."""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import TransformerConfig
from interp.model import Transformer

Recipes = Mapping[str, Callable[[], Tensor]]
"""How to make each of our stored tensors, by its name in `model.state_dict()`."""


@torch.no_grad()
def assemble(
    config: TransformerConfig,
    recipes: Recipes,
    *,
    where: str,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """Allocate the model, and make its tensors one by one; no second copy is ever held.

    Args:
        config: The model's.
        recipes: One for each stored tensor.
        where: What messages call the source.
        dtype: Of the weights. None: that of the embedding in the source.
        device: Where the model is made.

    Raises:
        ValueError: A tensor is missing, of another shape, or not finite.
    """
    dtype = recipes["embed.weight"]().dtype if dtype is None else dtype
    model = Transformer.unfilled(config, dtype=dtype, device=device)
    for name, stored in _stored(model):
        if name not in recipes:
            raise ValueError(f"{where}: holds nothing for {name}")
        made = recipes[name]()
        if made.shape != stored.shape:
            raise ValueError(
                f"{where}: {name} came out as {list(made.shape)}, "
                f"but the config says {list(stored.shape)}"
            )
        stored.copy_(made)
        if not math.isfinite(stored.float().abs().sum().item()):
            _refuse_infinite(name, stored, where)
    return model.eval()


def _stored(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    tied = model.config.tied_embeddings
    return ((n, x) for n, x in model.named_parameters() if not (tied and n == "unembed.weight"))


def _refuse_infinite(name: str, stored: Tensor, where: str) -> None:
    wrong = int((~stored.isfinite()).sum())
    if wrong:
        raise ValueError(f"{where}: {name} has {wrong} entries that are NaN or infinite")


def rows_of_heads(weight: Float[Tensor, "head d_model d_head"]) -> Float[Tensor, "rows d_model"]:
    """Heads' input matrices as the rows that a Linear stores."""
    return weight.mT.flatten(0, 1)


def columns_of_heads(weight: Float[Tensor, "head d_head d_model"]) -> Float[Tensor, "d_model cols"]:
    """Heads' output matrices as the columns that a Linear stores."""
    return weight.flatten(0, 1).T
