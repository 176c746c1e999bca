"""Small models on small tasks: the same sizes, steps and data for all that are compared."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from interp import Transformer, TransformerConfig, probes, tasks
from interp.tasks import Batch

LENGTH = 48
TASK: dict[str, Any] = {"vocab": 32, "length": LENGTH, "min_period": 6, "max_period": 24}
SIZES: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 64, "positional": "rotary"}


@dataclass(frozen=True)
class Trained:
    """A model, and how it does on held-out repeats.

    Attributes:
        model: In eval mode.
        accuracy: Over scored targets: the second halves.
        loss: Likewise, in nats.
        best_induction: The highest induction score of a head.
    """

    model: Transformer
    accuracy: float
    loss: float
    best_induction: float


def trained(steps: int, *, seed: int = 0, scored: str = "repeats", **changes: Any) -> Trained:
    """A model of two layers of four heads on repeats, or with other fields of its config.

    `scored` is the task's: "all" asks for the tokens of the first block too, which can only be
    guessed.
    """
    task = tasks.make("repeated_tokens", **TASK, scored=scored)
    sizes = {**SIZES, **changes}
    config = TransformerConfig(**sizes, d_vocab=task.d_vocab, n_ctx=LENGTH, init_seed=seed)
    model = fitted(config, task.batch, steps=steps, seed=seed)
    test = task.batch(128, torch.Generator().manual_seed(seed + 1), split="held_out")
    return _judged(model, test)


def fitted(
    config: TransformerConfig,
    draw: Callable[[int, torch.Generator], Batch],
    *,
    steps: int,
    seed: int = 0,
    batch_size: int = 32,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    enough: Callable[[int, Transformer], bool] = lambda step, model: False,
) -> Transformer:
    """A model trained on what a function draws, in eval mode; `enough` may end it earlier."""
    model, generator = Transformer(config), torch.Generator().manual_seed(seed)
    how: dict[str, Any] = {"lr": 3e-3, "weight_decay": weight_decay, "betas": betas}
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    for step in range(steps):
        batch = draw(batch_size, generator)
        loss_on(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if enough(step + 1, model):
            break
    return model.eval()


def under(model: Transformer, kind: str, **options: Any) -> Transformer:
    """The same weights with another kind of attention."""
    other = Transformer(replace(model.config, attention=kind, attention_options=options))
    other.load_state_dict(model.state_dict())
    return other.eval()


def loss_on(model: Transformer, batch: Batch) -> Tensor:
    """Mean loss over scored targets, in nats."""
    return F.cross_entropy(model(batch.tokens).flatten(0, 1), batch.targets.flatten())


@torch.no_grad()
def accuracy_on(model: Transformer, batch: Batch) -> float:
    """Over scored targets."""
    scored = batch.targets >= 0
    right = model(batch.tokens).argmax(-1)[scored] == batch.targets[scored]
    return float(right.float().mean())


@torch.no_grad()
def _judged(model: Transformer, test: Batch) -> Trained:
    heads = probes.head_statistics(model, test.tokens)
    return Trained(
        model,
        accuracy=accuracy_on(model, test),
        loss=float(loss_on(model, test)),
        best_induction=float(heads.induction.max()),
    )
