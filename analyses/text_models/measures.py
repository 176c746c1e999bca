"""What Olsson et al. 2022 measure, on bytes."""

from functools import lru_cache
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp import Transformer
from interp.runs import Run
from interp.tasks import Batch, Task

PERIOD, TIMES, SEQUENCES = 25, 4, 10
MOST_COMMON, USED = 5, 60
COUNTED = 400  # sequences that bytes are counted on


def common_bytes(task: Task) -> Int[Tensor, " byte"]:
    """Bytes that the text has, without the five most common and those after the next sixty."""
    batch = task.batch(COUNTED, torch.Generator().manual_seed(1))
    counts = torch.bincount(batch.tokens[:, 1:].flatten(), minlength=task.d_vocab)
    return counts.argsort(descending=True)[MOST_COMMON : MOST_COMMON + USED]


def repeats(task: Task) -> Int[Tensor, "n pos"]:
    """BOS, then 25 random common bytes, each once, four times over: 10 sequences.

    Source: Olsson et al. 2022, "prefix matching score".
    """
    pool, generator = common_bytes(task), torch.Generator().manual_seed(2)
    order = torch.rand(SEQUENCES, len(pool), generator=generator).argsort(-1)
    block = pool[order[:, :PERIOD]]
    start = torch.full((SEQUENCES, 1), task.bos_token or 0)
    return torch.cat([start, block.repeat(1, TIMES)], 1)


@lru_cache(maxsize=2)
def held_out(task: Task, n: int) -> Batch:
    """Text of files that training did not have."""
    return task.batch(n, torch.Generator().manual_seed(3), split="held_out")


@torch.no_grad()
def losses(model: Transformer, batch: Batch, *, at_once: int = 32) -> Float[Tensor, "batch pos"]:
    """The loss of each next byte, nats."""
    parts = [batch.tokens[at : at + at_once] for at in range(0, len(batch), at_once)]
    return torch.cat([model.loss(part, per_token=True) for part in parts])


def losses_at(run: Run, steps: list[int], n: int) -> Float[Tensor, "step batch pos"]:
    """Those of the same held-out text at each of some checkpoints."""
    batch = held_out(run.task, n)
    return torch.stack([losses(run.load(step), batch) for step in steps])


def window_score(losses: Float[Tensor, "*batch pos"], *, early: int, late: int) -> Tensor:
    """The in-context-learning score between windows of positions: less noisy than two positions.

    Mean loss from two thirds of `late` to the end, less that from half of `early` to half as much
    again.
    """
    first = losses[..., early - early // 2 : early + early // 2 + 1]
    last = losses[..., (2 * late) // 3 :]
    return last.mean((-1, -2)) - first.mean((-1, -2))


def foretold(tokens: Int[Tensor, "batch pos"], *, context: int) -> Bool[Tensor, "batch pos-1"]:
    """Whether induction foretells the next token.

    It does where the latest earlier occurrence of the last `context` tokens was followed by what
    comes next here, too. Entry t is of predicting token t + 1.
    """
    found = torch.zeros(tokens.shape[0], tokens.shape[1] - 1, dtype=torch.bool)
    for n, row in enumerate(tokens.tolist()):
        last: dict[tuple[int, ...], int] = {}
        for at, (_, following) in enumerate(pairwise(row)):
            key = tuple(row[max(0, at - context + 1) : at + 1])
            found[n, at] = last.get(key) == following
            last[key] = following
    return found
