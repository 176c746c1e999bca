"""Scores of all heads: each worked out once, whichever pages and columns ask for it."""

import numpy as np

from apps.answers import heads
from apps.prompts import Prompt
from apps.sources import Opened
from apps.state import answer


def score(opened: Opened, metric: str, prompt: Prompt | None) -> np.ndarray:
    """One number a head [L H]; one run of the model gives all that are statistics."""
    if metric in heads.FIELDS:
        return heads.column(answer(heads.statistics, opened, prompt), metric)
    return answer(heads.values, opened, metric, prompt)


def formula(opened: Opened, metric: str, prompt: Prompt | None) -> str:
    """How a score is made, with the number of keys from which on its rows count."""
    words = heads.METRICS[metric].formula
    if heads.KEYS not in words:
        return words
    return words.replace(heads.KEYS, str(answer(heads.statistics, opened, prompt).min_keys))
