"""Toy sequences: each task is a function from its options and a generator to a `Batch`.

A task is one file: a frozen dataclass of options, whose first line says what the task is, and a
function that draws a batch for a split. Its name stands in `TASKS`; `make` builds one by name.
"""

from interp.tasks.batch import SPLITS, UNSCORED, Batch, Split, TaskConfig
from interp.tasks.catalogue import TASKS, Task, make, options_of
from interp.tasks.markov import counted_predictions
from interp.tasks.modular_addition import every_pair
from interp.tasks.repeated_tokens import RepeatedTokens

__all__ = [
    "SPLITS",
    "TASKS",
    "UNSCORED",
    "Batch",
    "RepeatedTokens",
    "Split",
    "Task",
    "TaskConfig",
    "counted_predictions",
    "every_pair",
    "make",
    "options_of",
]
