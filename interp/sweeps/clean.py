"""The clean run: what every resumed run starts from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention import AttentionCall, Kernel, attend
from interp.attention.masks import positions_of
from interp.hooks import HookPoint, Hooks, Tap
from interp.sweeps.edits import NOTHING, Intervention, Slots
from interp.sweeps.examples import Examples


@dataclass(frozen=True, eq=False)
class CleanRun:
    """One run of some examples as they are.

    Attributes:
        examples: What was run.
        logits: What came out.
        cache: The activations that were asked for.
        calls: Each layer's attention call, where they were asked for.
        slots: Where the rows stand, and what the run without any intervention had.
        base: What was changed in this run already.
    """

    examples: Examples
    logits: Float[Tensor, "B T V"]
    cache: dict[str, Tensor]
    calls: dict[int, AttentionCall]
    slots: Slots
    base: Intervention = NOTHING


def record(
    model: Any,
    examples: Examples,
    names: Iterable[str],
    *,
    which: slice = slice(None),
    calls: bool = False,
    hooks: Hooks = (),
    kernel: Kernel | None = None,
) -> CleanRun:
    """Run the model once, keeping the activations called `names` (by reference)."""
    keeper = CallKeeper(kernel or attend) if calls else None
    used = keeper or kernel
    how: dict[str, Any] = {} if used is None else {"kernel": used}
    cache: dict[str, Tensor] = {}
    keep = [(name, partial(_keep, cache)) for name in names]
    logits = model(examples.tokens, mask=examples.mask, hooks=[*hooks, *keep], **how)
    slots = Slots(absolute_positions(examples), which, cache)
    return CleanRun(examples, logits, cache, {} if keeper is None else keeper.calls, slots)


def _keep(cache: dict[str, Tensor], x: Tensor, point: HookPoint) -> None:
    cache[point.name] = x


def absolute_positions(examples: Examples, past: int = 0) -> Int[Tensor, "b pos"]:
    """Each token's index among the real ones, behind `past` that came before."""
    if examples.mask is not None:
        return positions_of(examples.mask) + past
    n = examples.tokens.shape[1]
    return torch.arange(past, past + n, device=examples.tokens.device)[None]


@dataclass
class CallKeeper:
    """A kernel that remembers what each layer's attention was given."""

    kernel: Kernel = attend
    calls: dict[int, AttentionCall] = field(default_factory=dict)

    def __call__(self, call: AttentionCall, tap: Tap) -> Tensor:
        """Attention as it is."""
        self.calls[call.layer] = call
        return self.kernel(call, tap)
