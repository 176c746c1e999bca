"""The planner behind ablation and patching: many interventions, resumed and batched."""

from interp.sweeps.clean import CleanRun, absolute_positions, record
from interp.sweeps.edits import NOTHING, SITES, Change, Edit, Intervention, Site, Slots, hooks_for
from interp.sweeps.examples import Examples, examples_of, metric_name
from interp.sweeps.planner import Outcome, Plan, Progress, run
from interp.sweeps.single import run_once
from interp.sweeps.subject import evaluating
from interp.sweeps.uncertainty import (
    Interval,
    Sampled,
    bootstrap_interval,
    holm,
    permutation_p_values,
)

__all__ = [
    "NOTHING",
    "SITES",
    "Change",
    "CleanRun",
    "Edit",
    "Examples",
    "Interval",
    "Intervention",
    "Outcome",
    "Plan",
    "Progress",
    "Sampled",
    "Site",
    "Slots",
    "absolute_positions",
    "bootstrap_interval",
    "evaluating",
    "examples_of",
    "holm",
    "hooks_for",
    "metric_name",
    "permutation_p_values",
    "record",
    "run",
    "run_once",
]
