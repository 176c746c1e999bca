"""Questions to a model's heads and activations, each answered by a number a head."""

from interp.probes.detectors import (
    duplicate_token_score,
    induction_score,
    previous_token_score,
    sink_score,
)
from interp.probes.entropies import entropy
from interp.probes.heads import HeadStatistics, HeadStatisticsStream, head_statistics
from interp.probes.induction import (
    InductionEvidence,
    InductionHeads,
    find_induction_heads,
    induction_scores,
)

__all__ = [
    "HeadStatistics",
    "HeadStatisticsStream",
    "InductionEvidence",
    "InductionHeads",
    "duplicate_token_score",
    "entropy",
    "find_induction_heads",
    "head_statistics",
    "induction_score",
    "induction_scores",
    "previous_token_score",
    "sink_score",
]
