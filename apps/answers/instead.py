"""What a cut head gives instead: the kinds of ablation, and what they need."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from apps.sources import UnreadableError
from interp.tasks import Batch

KINDS = {  # what each kind of ablation puts in place of the head's output
    "zero": "nothing",
    "mean": "its mean at the same position, over held-out samples",
    "grand_mean": "its mean over samples and positions",
    "resample": "what it gave in another sample, at the same position",
    "uniform": "its values, mixed evenly over all keys it may see",
    "pattern_preserving": "nothing, while all attention patterns are held as they were",
    "direct": "nothing, but only where the last norm reads; later layers see it as it was",
    "optimal": "the constant at each position that costs the least loss, fitted to held-out "
    "samples (Li & Janson 2024): what is lost then is what no constant can give",
}
WITH_REFERENCE = ("mean", "grand_mean", "resample")
SEED = 0  # of the samples that `resample` draws


@dataclass(frozen=True)
class Instead:
    """A kind of ablation.

    Attributes:
        kind: One of `KINDS`.
        constants: [L T H E], the means, or what `optimal` has fitted; the model and `fitted_to`
            determine them.
        fitted_to: Held-out samples, or this prompt where samples are shorter.
    """

    kind: str
    constants: torch.Tensor | None = field(default=None, repr=False, compare=False)
    fitted_to: str = ""

    def options(self, batch: Batch) -> dict[str, Any]:
        """How `interp.ablation` is told, with `batch` to take means and other samples from."""
        if self.constants is not None:  # one per position, as a mean is
            return {"kind": "mean", "reference": self.constants}
        seeded = torch.Generator().manual_seed(SEED)
        return {
            "kind": self.kind,
            "reference": batch if self.kind in WITH_REFERENCE else None,
            "generator": seeded if self.kind == "resample" else None,
        }


ZERO = Instead("zero")


@contextmanager
def refusals() -> Iterator[None]:
    """Say in a sentence why this model or prompt can't be cut this way.

    Raises:
        UnreadableError: It can't.
    """
    try:
        yield
    except ValueError as error:
        raise UnreadableError(str(error)) from error
