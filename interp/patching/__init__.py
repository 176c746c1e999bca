"""Carry activations from one run over into another."""

from interp.patching.activations import activation_patching
from interp.patching.attribution import attribution_patching
from interp.patching.outcomes import HeadPatching, PositionPatching
from interp.patching.paths import path_patching

__all__ = [
    "HeadPatching",
    "PositionPatching",
    "activation_patching",
    "attribution_patching",
    "path_patching",
]
