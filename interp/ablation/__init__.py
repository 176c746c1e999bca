"""What happens without a head."""

from interp.ablation.cutting import ablate, sweep
from interp.ablation.gradients import Importance, importance
from interp.ablation.groups import group
from interp.ablation.kinds import ABLATIONS
from interp.ablation.outcomes import Group, HeadSweep, LayerSweep, Pairwise
from interp.ablation.pairs import conditional, pairwise
from interp.ablation.reference import reference_mean

__all__ = [
    "ABLATIONS",
    "Group",
    "HeadSweep",
    "Importance",
    "LayerSweep",
    "Pairwise",
    "ablate",
    "conditional",
    "group",
    "importance",
    "pairwise",
    "reference_mean",
    "sweep",
]
