"""Circuits: what heads do by their weights, and how they work together."""

from interp.circuits.attribution import ScoreAttribution, score_attribution
from interp.circuits.factored import FactoredMatrix
from interp.circuits.weights import (
    composition_percentiles,
    composition_scores,
    copying_score,
    ov,
    qk,
)

__all__ = [
    "FactoredMatrix",
    "ScoreAttribution",
    "composition_percentiles",
    "composition_scores",
    "copying_score",
    "ov",
    "qk",
    "score_attribution",
]
