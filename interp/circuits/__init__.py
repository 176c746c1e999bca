"""Circuits: what heads do by their weights, and how they work together."""

from interp.circuits import fourier
from interp.circuits.attribution import ScoreAttribution, score_attribution
from interp.circuits.factored import FactoredMatrix
from interp.circuits.induction import InductionCircuit, induction_circuit
from interp.circuits.paths import token_match
from interp.circuits.readings import SkipTrigrams, previous_token_match, skip_trigrams
from interp.circuits.symmetry import distance_irrelevance, gradient_symmetricity
from interp.circuits.weights import (
    composition_percentiles,
    composition_scores,
    copying_score,
    ov,
    qk,
)

__all__ = [
    "FactoredMatrix",
    "InductionCircuit",
    "ScoreAttribution",
    "SkipTrigrams",
    "composition_percentiles",
    "composition_scores",
    "copying_score",
    "distance_irrelevance",
    "fourier",
    "gradient_symmetricity",
    "induction_circuit",
    "ov",
    "previous_token_match",
    "qk",
    "score_attribution",
    "skip_trigrams",
    "token_match",
]
