"""Carry activations from one run over into another."""

from interp.patching.activations import activation_patching
from interp.patching.attributed_edges import EdgeScores, edge_attribution, edge_patching
from interp.patching.attribution import attribution_patching
from interp.patching.faithfulness import Faithfulness, faithfulness_curve
from interp.patching.outcomes import HeadPatching, PositionPatching
from interp.patching.paths import path_patching

__all__ = [
    "EdgeScores",
    "Faithfulness",
    "HeadPatching",
    "PositionPatching",
    "activation_patching",
    "attribution_patching",
    "edge_attribution",
    "edge_patching",
    "faithfulness_curve",
    "path_patching",
]
