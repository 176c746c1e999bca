"""Heads of a layer come in any order: match those of two seeds before averaging."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def align_heads(
    first: Float[Tensor, "layer head feature"], second: Float[Tensor, "layer head feature"]
) -> Int[Tensor, "layer head"]:
    """For each head of the first model, the head of the second that is most like it.

    Within a layer, one to one, minimising the summed squared differences of features (each scaled
    by its spread over both models); NaN counts as equal.

    Raises:
        ValueError: The shapes differ.

    Source: Kuhn 1955, through scipy's linear_sum_assignment.
    """
    from scipy.optimize import linear_sum_assignment

    if first.shape != second.shape or first.dim() != 3:
        raise ValueError(
            f"wanted two [layer head feature] alike, got {list(first.shape)}, {list(second.shape)}"
        )
    both = torch.stack([first, second]).double()
    spread = both.flatten(0, 2).nan_to_num().std(0).clamp(min=1e-12)
    a, b = both / spread
    cost = (a[:, :, None] - b[:, None]).nan_to_num().square().sum(-1)
    return torch.from_numpy(np.stack([linear_sum_assignment(c.numpy())[1] for c in cost]))


def reordered(
    values: Float[Tensor, "layer head *rest"], order: Int[Tensor, "layer head"]
) -> Float[Tensor, "layer head *rest"]:
    """The second model's values in the order of the first one's heads."""
    return torch.stack([layer[those] for layer, those in zip(values, order, strict=True)])
