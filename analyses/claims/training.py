"""Small attention-only models on repeated tokens: the same sizes, steps and data for all."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from interp import Transformer, TransformerConfig, probes, tasks
from interp.tasks import Batch

LENGTH = 48
TASK: dict[str, Any] = {"vocab": 32, "length": LENGTH, "min_period": 6, "max_period": 24}


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

    @torch.no_grad()
    def loss_of(self, batch: Batch, **call: Any) -> Tensor:
        """Mean loss over scored targets."""
        return _loss(self.model(batch.tokens, **call), batch)


def trained(steps: int, *, seed: int = 0, **changes: Any) -> Trained:
    """A model of two layers of four heads, or with other fields of its config."""
    task = tasks.make("repeated_tokens", **TASK)
    sizes: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 64, "positional": "rotary"}
    config = TransformerConfig(
        **{**sizes, **changes}, d_vocab=task.d_vocab, n_ctx=LENGTH, init_seed=seed
    )
    model, generator = Transformer(config), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for _ in range(steps):
        batch = task.batch(32, generator)
        _loss(model(batch.tokens), batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    test = task.batch(128, torch.Generator().manual_seed(seed + 1), split="held_out")
    return _judged(model.eval(), test)


@torch.no_grad()
def _judged(model: Transformer, test: Batch) -> Trained:
    logits, scored = model(test.tokens), test.targets >= 0
    hits = logits.argmax(-1)[scored] == test.targets[scored]
    heads = probes.head_statistics(model, test.tokens)
    return Trained(
        model,
        accuracy=float(hits.float().mean()),
        loss=float(_loss(logits, test)),
        best_induction=float(heads.induction.max()),
    )


def _loss(logits: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
