"""A sequence cut across processes, and the ring in which they pass tensors on.

A process holds one chunk from the front of the sequence and the matching one from its back, so that
under a causal mask all have the same work.

Source: the balanced order is that of Brandon et al. 2023, "Striped Attention", by halves in place
of stripes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Ring:
    """The processes that share a sequence.

    Attributes:
        rank: This one's number.
        size: How many there are.
        group: torch.distributed's; None: all processes.
        timeout: Seconds to wait for a neighbour before giving up.
    """

    rank: int
    size: int
    group: Any = None
    timeout: float = 60.0

    @classmethod
    def of(cls, group: Any = None, *, timeout: float = 60.0) -> "Ring":
        """The ring of a process group, or of one process where none is initialised."""
        if not dist.is_initialized():
            return cls(0, 1)
        return cls(dist.get_rank(group), dist.get_world_size(group), group, timeout)

    def chunks(self, owner: int) -> tuple[int, int]:
        """Which of 2·size chunks of the sequence a process holds, in order."""
        return owner, 2 * self.size - 1 - owner

    def passed_on(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Send these to the next process; what the one before sends.

        Raises:
            ConnectionError: A neighbour is gone, or silent for longer than the timeout.
        """
        if self.size == 1:
            return list(tensors)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        came = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors]
        ops = [self._op(dist.isend, x.contiguous(), after) for x in tensors]
        ops += [self._op(dist.irecv, x, before) for x in came]
        try:
            for work in dist.batch_isend_irecv(ops):
                work.wait(timedelta(seconds=self.timeout))
        except RuntimeError as error:
            raise ConnectionError(
                f"ring attention: process {self.rank} lost process {before} or {after} of "
                f"{self.size}; start all of them again ({error})"
            ) from error
        return came

    def _op(self, what: Callable[..., Any], x: Tensor, peer: int) -> dist.P2POp:
        return dist.P2POp(what, x, group=self.group, group_peer=peer)


def shard(x: Tensor, ring: Ring, *, dim: int = 2) -> Tensor:
    """A process's part of a whole sequence: two of 2·size chunks.

    Raises:
        ValueError: The sequence can't be cut into so many equal chunks.
    """
    n = x.shape[dim]
    if n % (2 * ring.size):
        raise ValueError(
            f"a ring of {ring.size} cuts a sequence into {2 * ring.size} equal chunks; "
            f"{n} tokens can't be: pad them"
        )
    chunks = x.chunk(2 * ring.size, dim)
    return torch.cat([chunks[c] for c in ring.chunks(ring.rank)], dim)


def unshard(parts: Sequence[Tensor], *, dim: int = 2) -> Tensor:
    """The whole sequence from every process's part, in order of rank."""
    ring = Ring(0, len(parts))
    chunks: list[Tensor | None] = [None] * (2 * len(parts))
    for owner, part in enumerate(parts):
        for number, half in zip(ring.chunks(owner), part.chunk(2, dim), strict=True):
            chunks[number] = half
    return torch.cat([chunk for chunk in chunks if chunk is not None], dim)
