"""Models without the gains of 1 and biases of 0 that hide faults."""

import torch
from torch import nn

from interp import Transformer, TransformerConfig


def scramble(model: nn.Module, scale: float = 0.3) -> nn.Module:
    """Add noise to every weight, the same on every call."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(scale * torch.randn(weight.shape, generator=generator))
    return model.eval()


def scrambled(config: TransformerConfig) -> Transformer:
    """A Transformer of this config, scrambled."""
    model = Transformer(config)
    scramble(model)
    return model
