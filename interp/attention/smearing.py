"""Smeared keys: each key mixed with the one before it, which lets one layer do induction.

    k_j ← σ(α) k_j + (1 − σ(α)) k_{j−1}

with one trainable α a head; the first key stays as it is.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads", argument 2.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def smeared(
    k: Float[Tensor, "batch pos kv_head d_head"],
    share: Float[Tensor, " kv_head"],
    *,
    before: Float[Tensor, "batch 1 kv_head d_head"] | None = None,
    real: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, "batch pos kv_head d_head"]:
    """Keys with a part of the previous real token's.

    Args:
        k: As they were projected.
        share: σ(α), how much of a key is its own.
        before: The key before the first of these; None: there is none.
        real: True where a token is real; pads are nobody's previous token.
    """
    mix = share[:, None].to(k.dtype)
    return mix * k + (1 - mix) * _previous(k, before, real)


def last_key(
    k: Float[Tensor, "batch pos kv_head d_head"],
    *,
    before: Float[Tensor, "batch 1 kv_head d_head"] | None = None,
    real: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, "batch 1 kv_head d_head"]:
    """The key that the next chunk's first token is mixed with."""
    if real is None:
        return k[:, -1:]
    latest = _latest_real(real)[:, -1:]
    return _at(k, latest, k[:, -1:] if before is None else before)


def _previous(k: Tensor, before: Tensor | None, real: Tensor | None) -> Tensor:
    first = k[:, :1] if before is None else before
    if real is None:
        return torch.cat([first, k[:, :-1]], 1)
    nothing = torch.full_like(real[:, :1], -1, dtype=torch.long)
    index = torch.cat([nothing, _latest_real(real)[:, :-1]], 1)
    return _at(k, index, k if before is None else before)


def _latest_real(real: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """The slot of the last real token up to each; −1: none."""
    slots = torch.arange(real.shape[1], device=real.device)
    return torch.where(real, slots, -1).cummax(1).values


def _at(k: Tensor, index: Int[Tensor, "batch n"], otherwise: Tensor) -> Tensor:
    taken = k.gather(1, index.clamp(min=0)[:, :, None, None].expand(-1, -1, *k.shape[2:]))
    return torch.where((index < 0)[:, :, None, None], otherwise, taken)
