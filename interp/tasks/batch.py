"""What a task gives: tokens, which of them are real, and what is asked at each position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

Split = Literal["train", "held_out"]
SPLITS: tuple[Split, ...] = get_args(Split)
UNSCORED = -100  # torch's own mark of a target that is not asked for


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences with what a model should say of them.

    `mask` is True for real tokens; `targets[b, t]` is what `logits[b, t]` should say, −100 where
    nothing is asked. `source` is what an encoder reads, for tasks that are given as pairs; its
    tokens are all real.

    Raises:
        ValueError: shapes or kinds of numbers that do not go together.
    """

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    source: Int[Tensor, "B S"] | None = None

    def __post_init__(self) -> None:
        shapes = [list(t.shape) for t in (self.tokens, self.mask, self.targets)]
        if self.tokens.ndim != 2 or any(shape != shapes[0] for shape in shapes):
            raise ValueError(f"a batch wants tokens, mask and targets of one [B, T], got {shapes}")
        if self.mask.dtype is not torch.bool:
            raise ValueError(f"a batch's mask is bool (True = real), got {self.mask.dtype}")
        if self.source is not None and len(self.source) != len(self.tokens):
            raise ValueError(f"{len(self.source)} sources for {len(self.tokens)} sequences")

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Tensor) -> Self:
        """The examples that a slice or an index tensor names."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device | str) -> Self:
        """The same batch on `device`."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        source = None if self.source is None else change(self.source)
        return type(self)(change(self.tokens), change(self.mask), change(self.targets), source)


class TaskConfig(Protocol):
    """What the options of a task say of the model that it needs."""

    @property
    def d_vocab(self) -> int:
        """Number of tokens, special ones included."""
        ...

    @property
    def n_ctx(self) -> int:
        """Number of positions of a sequence."""
        ...

    @property
    def bos_token(self) -> int | None:
        """The token that every sequence begins with; None if there is none."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each token."""
        ...


def next_token_batch(
    tokens: Int[Tensor, "B T"], *, scored: Bool[Tensor, "B T"] | None = None
) -> Batch:
    """A batch of real tokens in which the `scored` positions (None: all) are asked for the next.

    The last position has no next token and is never scored.
    """
    targets = F.pad(tokens[:, 1:], (0, 1), value=UNSCORED)
    if scored is not None:
        targets = targets.masked_fill(~scored, UNSCORED)
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)


def numbered(count: int, *special: str) -> tuple[str, ...]:
    """The labels "0" … and those of the special tokens after them."""
    return (*map(str, range(count)), *special)
