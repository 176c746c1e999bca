"""LayerNorm and RMSNorm, whose insides can be read and replaced."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from interp.config import TransformerConfig
from interp.hooks import Tap


class Norm(nn.Module):
    """LayerNorm or RMSNorm; one fused operation unless its inside is asked for."""

    def __init__(self, kind: str, width: int, *, eps: float, bias: bool) -> None:
        super().__init__()
        self.kind, self.eps, self.width = kind, eps, width
        learned = kind in ("layer_norm", "rms_norm")
        shift = kind == "layer_norm" and bias
        self.weight = nn.Parameter(torch.ones(self.width)) if learned else None
        self.bias = nn.Parameter(torch.zeros(self.width)) if shift else None

    def forward(self, x: Float[Tensor, "*batch d_model"], tap: Tap) -> Tensor:
        """Normalise; `hook_scale` is what x is divided by, `hook_normalized` is before the gain."""
        if self.kind == "none":
            return x
        if tap.wants("hook_scale", "hook_normalized"):
            centred = self._centred(x)
            scale = tap("hook_scale", self._scale(centred))
            x = tap("hook_normalized", (centred / scale).to(x.dtype))
            x = x if self.weight is None else x * self.weight
            return x if self.bias is None else x + self.bias
        if tap.active:
            self._leave_recipes(tap.held(x), tap)
        if self.kind.startswith("layer"):
            return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)
        return F.rms_norm(x, (self.width,), self.weight, self.eps)

    def of_part(self, part: Float[Tensor, "*batch d_model"], scale: Tensor) -> Tensor:
        """What a part of the input adds to the output while `hook_scale` stays as it was."""
        part = self._centred(part) / scale
        return part if self.weight is None else part * self.weight

    def _leave_recipes(self, x: Tensor, tap: Tap) -> None:
        centred = self._centred
        tap.later("hook_scale", lambda: self._scale(centred(x)))
        tap.later("hook_normalized", lambda: centred(x) / self._scale(centred(x)))

    def _centred(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return x - x.mean(-1, keepdim=True) if self.kind.startswith("layer") else x

    def _scale(self, centred: Tensor) -> Tensor:
        return (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()


def norm_of(config: TransformerConfig, kind: str, width: int | None = None) -> Norm:
    """A norm of this kind, as wide as the residual stream unless a width is given."""
    width = config.d_model if width is None else width
    return Norm(kind, width, eps=config.norm_eps, bias=config.has_bias("norm"))
