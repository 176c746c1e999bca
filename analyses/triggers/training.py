"""The simplified transformer of Bietti et al. 2023, its training, and its memories' recall."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import interp
from interp import metrics, tasks
from interp.tasks.trigger_bigrams import TriggerBigrams, trigger_tokens

DECAY, MOMENTUM = 1e-4, 0.9
MEMORIES = {
    "W_O^1": "a token's own logit (W_O^1)",
    "W_K^1": "a trigger finds itself (W_K^1)",
    "W_K^0": "the position before (W_K^0)",
}
"""In the order in which the paper has them learned; layers are counted from 0."""


@dataclass(frozen=True)
class Setting:
    """Sizes and training.

    Attributes:
        d_model: Of the stream; the one head of a layer is as wide.
        length: Positions.
        batch_size: Sequences a step.
        steps: Of SGD.
        learning_rate: Constant.
        every: Steps between measurements.
        seeds: Weights and data, drawn anew for each.
    """

    d_model: int = 128
    length: int = 64
    batch_size: int = 32
    steps: int = 1000
    learning_rate: float = 0.2
    every: int = 20
    seeds: int = 3

    def departures(self) -> list[str]:
        """What is not the paper's."""
        return [
            "Bigrams of a fixed random chain of 64 tokens, not of the characters of Shakespeare; "
            "outputs are tokens that are not triggers.",
            f"{self.length} positions (256), d_model {self.d_model} (256), batches of "
            f"{self.batch_size} (512).",
            f"SGD at a learning rate of {self.learning_rate} (0.03, where batches are larger), "
            f"{self.steps} steps (1,000); momentum 0.9 and weight decay 1e-4 as published.",
        ]


@dataclass(frozen=True)
class Measured:
    """One look at a model in training.

    Attributes:
        step: When.
        loss: On held-out outputs, nats.
        accuracy: Likewise.
        recall: Of each memory.
        recall_of_outputs: Of W_O^1 over the tokens that can be outputs.
        recall_early: Of W_K^0 over the first half of positions.
    """

    step: int
    loss: float
    accuracy: float
    recall: dict[str, float]
    recall_of_outputs: float
    recall_early: float


def task_of(setting: Setting) -> tasks.Task:
    """Five triggers in a chain of 64 tokens."""
    return tasks.make("trigger_bigrams", vocab=64, length=setting.length, triggers=5)


def model_of(setting: Setting, seed: int) -> interp.Transformer:
    """The simplified transformer of the paper: nothing has a gradient yet."""
    config = interp.TransformerConfig(
        n_layers=2,
        n_heads=1,
        d_model=setting.d_model,
        d_vocab=64,
        n_ctx=setting.length,
        normalization="none",
        bias=False,
    )
    model, bound = interp.Transformer(config), setting.d_model**-0.5
    generator = torch.Generator().manual_seed(seed)
    model.W_E.normal_(generator=generator)
    model.W_pos.normal_(generator=generator)
    model.W_U.uniform_(-bound, bound, generator=generator)
    for block in model.blocks:
        for weight in (block.attn.W_K, block.attn.W_V, block.attn.W_O):
            weight.uniform_(-bound, bound, generator=generator)
        block.attn.W_Q.copy_(torch.eye(setting.d_model))
    return model.requires_grad_(False)


def optimizer_of(model: interp.Transformer, setting: Setting, *, frozen: bool) -> torch.optim.SGD:
    """SGD of W_K^0, W_K^1 and W_O^1.

    Queries, keys and values are stored in one matrix: rows that stay are masked, decay included.
    """
    width, last = setting.d_model, model.blocks[1].attn.o.weight
    keys = torch.zeros(3 * width, 1)
    keys[width : 2 * width] = 1.0
    trained = {last: torch.ones(1, 1)}
    trained |= {block.attn.qkv.weight: keys for block in model.blocks[1 if frozen else 0 :]}
    for weight, mask in trained.items():
        weight.requires_grad_(True)
        weight.register_hook(partial(_masked, weight, mask))
    return torch.optim.SGD(list(trained), lr=setting.learning_rate, momentum=MOMENTUM)


def _masked(weight: Tensor, mask: Tensor, gradient: Tensor) -> Tensor:
    return mask * (gradient + DECAY * weight.detach())


def followed(
    model: interp.Transformer, setting: Setting, *, seed: int, frozen: bool = False
) -> Iterator[Measured]:
    """Train a model, and look every so many steps."""
    task = task_of(setting)
    optimizer = optimizer_of(model, setting, frozen=frozen)
    generator = torch.Generator().manual_seed(seed)
    held_out = task.batch(128, torch.Generator().manual_seed(10_000), split="held_out")
    for step in range(setting.steps + 1):
        if step % setting.every == 0:
            yield _measured(model, task, held_out, step)
        batch = task.batch(setting.batch_size, generator)
        logits = model(batch.tokens).flatten(0, 1)
        F.cross_entropy(logits, batch.targets.flatten(), ignore_index=metrics.UNSCORED).backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def _measured(
    model: interp.Transformer, task: tasks.Task, held_out: tasks.Batch, step: int
) -> Measured:
    assert isinstance(task.config, TriggerBigrams)
    triggers = trigger_tokens(task.config)
    hits = recalled(model, triggers)
    logits, scored = model(held_out.tokens), held_out.targets != metrics.UNSCORED
    targets = held_out.targets[scored]
    others = torch.ones(task.d_vocab, dtype=torch.bool).index_fill(0, triggers, False)
    return Measured(
        step=step,
        loss=float(F.cross_entropy(logits[scored], targets)),
        accuracy=_share(logits[scored].argmax(-1) == targets),
        recall={name: _share(hits[name]) for name in MEMORIES},
        recall_of_outputs=_share(hits["W_O^1"][others]),
        recall_early=_share(hits["W_K^0"][: task.n_ctx // 2]),
    )


def recalled(model: interp.Transformer, triggers: Tensor) -> dict[str, Tensor]:
    """Which entries of each memory come back: positions 1 …, triggers, tokens.

    W_K^0: of all positions but the last, position t's query (t ≥ 1) has its largest product with
    the key of t − 1. W_K^1: of all triggers, a trigger's query has it with the key of what the
    first layer writes for that trigger. W_O^1: what the second layer writes for a token has its
    largest logit at that token.
    """
    query, key, value, out = (
        weight[:, 0] for weight in (model.W_Q, model.W_K, model.W_V, model.W_O)
    )
    asked, positions = model.W_E[triggers], model.W_pos
    before = (positions[1:] @ query[0]) @ (positions[:-1] @ key[0]).T
    same = (asked @ query[1]) @ (asked @ value[0] @ out[0] @ key[1]).T
    own = model.W_E @ value[1] @ out[1] @ model.W_U
    products = {"W_O^1": own, "W_K^1": same, "W_K^0": before}
    return {name: x.argmax(-1) == torch.arange(len(x)) for name, x in products.items()}


def _share(hits: Tensor) -> float:
    return float(hits.float().mean())
