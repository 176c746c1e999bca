"""Attention patterns held at the clean run's, whatever is edited below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.attention import AttentionCall, Kernel, attend
from interp.hooks import Tap
from interp.sweeps.clean import CleanRun
from interp.sweeps.edits import Intervention


def held_patterns(clean: CleanRun, interventions: Sequence[Intervention]) -> dict[str, Kernel]:
    """The kernel that these interventions need, if any holds patterns."""
    held = [i.holds_patterns for i in interventions]
    return {"kernel": HeldPatterns(clean.calls, held, len(clean.examples))} if any(held) else {}


@dataclass(frozen=True)
class HeldPatterns:
    """A kernel that mixes values by the clean run's patterns: its queries and keys, kept.

    So no pattern is ever held in memory, and the fused route stays on.
    """

    clean: Mapping[int, AttentionCall]
    held: Sequence[bool]
    n_examples: int
    kernel: Kernel = attend

    def __call__(self, call: AttentionCall, tap: Tap) -> Tensor:
        """Attention with clean queries and keys where patterns are held."""
        was = self.clean[call.layer]
        q, k = (self._mixed(own, kept) for own, kept in ((call.q, was.q), (call.k, was.k)))
        return self.kernel(replace(call, q=q, k=k), tap)

    def _mixed(self, own: Tensor, clean: Tensor) -> Tensor:
        parts = own.split(self.n_examples)
        return torch.cat([clean if h else x for h, x in zip(self.held, parts, strict=True)])
