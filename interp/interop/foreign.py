"""What probes read of a Hugging Face model's weights: heads' outputs, the last norm, logits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import Normalization

_OUTPUTS = ("o_proj", "c_proj", "out_proj", "dense", "wo")
_LAST_NORMS = ("ln_f", "norm", "final_layer_norm", "final_layernorm", "ln_final")


@dataclass(frozen=True)
class ForeignHeads:
    """One layer's heads in another library's module."""

    module: Any
    n_heads: int
    layer: int

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """From z to what the heads write (before any norm that follows): a view.

        Raises:
            AttributeError: The module has no output matrix that we know.
        """
        for name in _OUTPUTS:
            found = getattr(self.module, name, None)
            if found is not None:
                rows = found.weight if not isinstance(found, nn.Linear) else found.weight.T
                return rows.detach().unflatten(0, (self.n_heads, -1))
        kind = type(self.module).__name__
        raise AttributeError(f"W_O: {kind} has none of {', '.join(_OUTPUTS)}")


@dataclass(frozen=True)
class ForeignBlock:
    """One layer: its heads."""

    attn: Any


@dataclass(frozen=True)
class ForeignNorm:
    """A norm, known by what it does.

    Attributes:
        kind: "layer_norm" where it subtracts the mean, else "rms_norm".
        weight: Its gain.
    """

    kind: Normalization
    weight: Float[Tensor, " d_model"]


@torch.no_grad()
def last_norm(model: Any) -> ForeignNorm:
    """The norm before the unembedding, by its effect on two vectors: 1 + w and w look alike.

    Raises:
        AttributeError: There is none under a name that we know.
    """
    named = dict(model.named_modules())
    found = [n for n in named if n.rpartition(".")[2] in _LAST_NORMS and n.count(".") <= 2]
    found = [n for n in found if not any(part.isdigit() for part in n.split("."))]
    if not found:
        raise AttributeError(f"ln_final: {type(model).__name__} has none of {_LAST_NORMS}")
    norm = named[found[-1]]
    like = next(norm.parameters())
    return norm_by_effect(lambda x: norm(x[None])[0], model.config.hidden_size, like)


def norm_by_effect(norm: Callable[[Tensor], Tensor], width: int, like: Tensor) -> ForeignNorm:
    """What a norm does to vectors [D] of the dtype and device of `like`."""
    x = torch.linspace(1.0, 2.0, width, device=like.device)

    def apply(vector: Tensor) -> Tensor:
        return norm(vector.to(like.dtype)).float()

    centres = torch.allclose(apply(x + 1), apply(x), atol=1e-3, rtol=1e-3)
    gains, shown = [], []
    for vector in (x, x.roll(width // 4)):  # where one is near its mean, the other is not
        odd = (apply(vector) - apply(-vector)) / 2  # the bias drops out
        alone = vector - vector.mean() if centres else vector
        alone = alone / alone.square().mean().sqrt()
        gains.append(odd / alone)
        shown.append(alone.abs())
    gain = torch.where(shown[0] > shown[1], *gains)
    return ForeignNorm("layer_norm" if centres else "rms_norm", gain)
