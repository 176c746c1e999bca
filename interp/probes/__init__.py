"""Questions to a model's heads and activations, each answered by a number a head."""

from interp.probes.detectors import (
    duplicate_token_score,
    induction_score,
    previous_token_score,
    sink_score,
)
from interp.probes.entropies import entropy
from interp.probes.heads import HeadStatistics, HeadStatisticsStream, head_statistics

__all__ = [
    "HeadStatistics",
    "HeadStatisticsStream",
    "duplicate_token_score",
    "entropy",
    "head_statistics",
    "induction_score",
    "previous_token_score",
    "sink_score",
]
