"""How heads form: statistics over the checkpoints of a run."""

from interp.dynamics.alignment import align_heads, reordered
from interp.dynamics.formation import AcrossSeeds, Formation, across_seeds, formation
from interp.dynamics.in_context import (
    in_context_learning_score,
    in_context_score,
    loss_by_position,
    loss_pca,
)
from interp.dynamics.revisions import Revisions
from interp.dynamics.trajectory import STATISTICS, Trajectory, over_checkpoints

__all__ = [
    "STATISTICS",
    "AcrossSeeds",
    "Formation",
    "Revisions",
    "Trajectory",
    "across_seeds",
    "align_heads",
    "formation",
    "in_context_score",
    "in_context_learning_score",
    "loss_by_position",
    "loss_pca",
    "over_checkpoints",
    "reordered",
]
