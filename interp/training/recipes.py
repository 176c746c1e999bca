"""Settings that were chosen by trial: small runs of which it is known what they show."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interp.config import TransformerConfig
from interp.runs import Run
from interp.tasks import Task, make
from interp.training.loop import train


@dataclass(frozen=True)
class Recipe:
    """A model, a task, and how to train it.

    Attributes:
        config: The model.
        task: The task.
        options: Of training.
    """

    config: TransformerConfig
    task: Task
    options: dict[str, Any]

    def train(self, out: str | Path, *, seed: int = 0, **how: Any) -> Run:
        """Train it; `seed` is that of the weights and of the data."""
        config = replace(self.config, init_seed=seed)
        settings: dict[str, Any] = self.options | {"seed": seed} | how
        return train(config, self.task, out=out, **settings)


def induction() -> Recipe:
    """Two layers in which induction heads form: in half a minute on two cores, for any seed."""
    task = make("repeated_tokens", vocab=64, length=64, min_period=8, max_period=32)
    config = TransformerConfig(
        n_layers=2,
        n_heads=4,
        d_model=64,
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        positional="rotary",
        bos_token=task.bos_token,
    )
    return Recipe(config, task, {"steps": 600, "batch_size": 64, "learning_rate": 3e-3})


def majority() -> Recipe:
    """One layer whose head must spread evenly to count: near-uniform, and essential."""
    task = make("running_majority", length=32)
    config = TransformerConfig(
        n_layers=1,
        n_heads=1,
        d_model=32,
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        positional="none",
    )
    options = {"steps": 200, "batch_size": 64, "learning_rate": 1e-2, "warmup_steps": 20}
    return Recipe(config, task, options | {"checkpoints_per_octave": 2})
