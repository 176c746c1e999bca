"""Leave a model as it was found."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: object, *, gradients: bool = False) -> Iterator[None]:
    """Evaluation mode and no gradients inside the block; every module's mode is put back."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        for module in training:
            module.training = True
