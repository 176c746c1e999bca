"""What happens without a head."""

from interp.ablation.cutting import ablate, sweep
from interp.ablation.groups import group
from interp.ablation.kinds import ABLATIONS
from interp.ablation.outcomes import Group, HeadSweep, LayerSweep
from interp.ablation.reference import reference_mean

__all__ = [
    "ABLATIONS",
    "Group",
    "HeadSweep",
    "LayerSweep",
    "ablate",
    "group",
    "reference_mean",
    "sweep",
]
