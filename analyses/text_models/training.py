"""Attention-only models of the standard library's source, byte by byte."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interp
from interp import TransformerConfig
from interp.runs import Run
from interp.tasks import make

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "two layers": {"n_layers": 2},
    "one layer": {"n_layers": 1},
    "one layer, smeared keys": {"n_layers": 1, "smeared_keys": True},
}


@dataclass(frozen=True)
class Scale:
    """What was cut down to fit minutes of one core.

    Attributes:
        steps: Updates of the weights.
        batch_size: Sequences an update.
        length: Bytes of a sequence, BOS included.
        d_model: Width of the residual stream.
        n_heads: Heads a layer, of d_model / 4 each.
        learning_rate: AdamW's, after a warm-up constant: a fall of it would mark a step by itself.
        examples: Held-out sequences that losses are taken on.
    """

    steps: int = 20_000
    batch_size: int = 8
    length: int = 128
    d_model: int = 128
    n_heads: int = 8
    learning_rate: float = 2e-3
    examples: int = 256

    @property
    def early(self) -> int:
        """The index that stands for token 50 of 512, counted from 0 along the losses."""
        return round(50 * self.length / 512)

    @property
    def late(self) -> int:
        """The index that stands for token 500."""
        return round(500 * self.length / 512)


FULL = Scale()
QUICK = Scale(steps=30, batch_size=4, length=128, d_model=32, n_heads=2, examples=16)


def folder_of(runs: Path, name: str, scale: Scale, *, seed: int = 0) -> Path:
    """Where a model's run is."""
    return runs / f"{name.replace(', ', ' ').replace(' ', '_')}-{scale.steps}-{seed}"


def is_trained(runs: Path, name: str, scale: Scale, *, seed: int = 0) -> bool:
    """Whether its run has come to its end."""
    folder = folder_of(runs, name, scale, seed=seed)
    return folder.is_dir() and Run(folder).finished


def trained(runs: Path, name: str, scale: Scale, *, seed: int = 0) -> Run:
    """A model of `ARCHITECTURES`: trained, gone on with, or read, by what the folder has."""
    task = make("text", length=scale.length)
    config = TransformerConfig(
        n_heads=scale.n_heads,
        d_head=scale.d_model // 4,
        d_model=scale.d_model,
        d_vocab=task.d_vocab,
        n_ctx=scale.length,
        positional="learned",
        bos_token=task.bos_token,
        init_seed=seed,
        **ARCHITECTURES[name],
    )
    return interp.train(
        config,
        task,
        out=folder_of(runs, name, scale, seed=seed),
        resume=True,
        progress=False,
        steps=scale.steps,
        batch_size=scale.batch_size,
        seed=seed,
        learning_rate=scale.learning_rate,
        schedule="constant",
        warmup_steps=min(200, scale.steps // 2),
        checkpoints_per_octave=8,
        evaluate_every=scale.steps,
        evaluation_size=8,
    )
