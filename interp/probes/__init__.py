"""Questions to a model's heads and activations, each answered by a number a head."""

from interp.probes.depths import ProbeSweep, sweep_probes
from interp.probes.detectors import (
    duplicate_token_score,
    induction_score,
    previous_token_score,
    sink_score,
)
from interp.probes.divergence import pattern_divergence
from interp.probes.entropies import entropy
from interp.probes.heads import HeadStatistics, HeadStatisticsStream, head_statistics
from interp.probes.induction import (
    InductionEvidence,
    InductionHeads,
    find_induction_heads,
    induction_scores,
)
from interp.probes.linear import LinearProbe
from interp.probes.rows import least_keys
from interp.probes.targets import OffsetProfile, head_score, offset_profile

__all__ = [
    "HeadStatistics",
    "HeadStatisticsStream",
    "InductionEvidence",
    "InductionHeads",
    "LinearProbe",
    "OffsetProfile",
    "ProbeSweep",
    "duplicate_token_score",
    "entropy",
    "find_induction_heads",
    "head_score",
    "head_statistics",
    "induction_score",
    "induction_scores",
    "least_keys",
    "offset_profile",
    "pattern_divergence",
    "previous_token_score",
    "sink_score",
    "sweep_probes",
]
