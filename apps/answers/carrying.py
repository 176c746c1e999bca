"""Activation patching: which heads and positions carry the answer from one prompt to another."""

from functools import partial
from typing import Literal

import numpy as np
import torch

from apps.answers.reading import logits_of
from apps.prompts import Prompt
from apps.sources import Opened, UnreadableError
from interp import metrics, patching
from interp.plots.arrays import as_floats
from interp.sweeps import Progress
from interp.tasks import Batch

By = Literal["head", "position"]
SITES: dict[By, Literal["z", "resid"]] = {"head": "z", "position": "resid"}


def answer_at(opened: Opened, prompt: Prompt, position: int) -> int:
    """What should be said at a position; what the model says where nothing is asked."""
    target = int(prompt.read_batch.targets[0, position])
    if target != metrics.UNSCORED:
        return target
    return int(logits_of(opened, prompt.batch)[0, position].argmax())


def patched(
    opened: Opened,
    prompt: Prompt,
    swap: tuple[int, int],
    position: int,
    by: By,
    *,
    progress: Progress | None = None,
) -> np.ndarray:
    """The share of the answer that comes back when one place of the clean run is carried over.

    Args:
        opened: The model.
        prompt: The clean prompt; the corrupted one has one token replaced wherever it stands.
        swap: The token that is replaced, and what by.
        position: Where the answer is given.
        by: Each head's output, or the residual stream at each position: [L H] or [L T].
        progress: Called with (done, total).

    Raises:
        UnreadableError: The replaced token changes nothing.
    """
    tokens = prompt.batch.tokens
    corrupted = tokens.masked_fill(tokens == swap[0], swap[1])
    answer = answer_at(opened, prompt, position)
    targets = torch.full_like(tokens, metrics.UNSCORED)
    targets[0, position] = answer
    clean = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)
    other = int(logits_of(opened, Batch(corrupted, clean.mask, targets))[0, position].argmax())
    if other == answer:
        raise UnreadableError("the model says the same for both prompts: replace another token")
    wrong = torch.full_like(tokens, other)
    found = patching.activation_patching(
        opened.model,
        clean,
        corrupted,
        site=SITES[by],
        by=by,
        metric=partial(metrics.logit_difference, wrong=wrong),
        progress=progress,
    )
    return as_floats(found.recovery)
