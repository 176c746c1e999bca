"""Keys and values in blocks of a shared pool, so that sequences grow, fork and end without copies.

A sequence has a table of blocks; the last one is filled up before another is taken, so that at
most one block less a token is wasted. Sequences with a common prefix share its blocks, and a shared
block is copied by who writes into it first.

Source: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with
PagedAttention" (vLLM). Theirs has kernels that read through the table; here a layer's keys are
gathered for the call, so that any kernel can read them, and memory is what is saved.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention.kv_cache import KVCache


class BlockPool:
    """Blocks of keys and values of all layers, counted by who uses them."""

    def __init__(self, n_layers: int, *, block: int = 16, capacity: int | None = None) -> None:
        """Make an empty pool.

        Args:
            n_layers: Layers of the model; a block holds its tokens' keys and values for each.
            block: Tokens in a block.
            capacity: How many blocks there may be. None: as many as are asked for.
        """
        if block < 1 or (capacity is not None and capacity < 1):
            raise ValueError(f"block and capacity must be at least 1, got {block} and {capacity}")
        self.n_layers, self.block, self.capacity = n_layers, block, capacity
        self.keys: list[Tensor | None] = [None] * n_layers
        self.values: list[Tensor | None] = [None] * n_layers
        self.free: list[int] = []
        self.uses: list[int] = []

    def take(self) -> int:
        """A block that nobody uses.

        Raises:
            MemoryError: All that there may be are in use.
        """
        if not self.free:
            self._grow()
        number = self.free.pop()
        self.uses[number] = 1
        return number

    def share(self, number: int) -> int:
        """The same block, used once more."""
        self.uses[number] += 1
        return number

    def give_back(self, number: int) -> None:
        """Use a block once less; free it if that was the last use."""
        self.uses[number] -= 1
        if self.uses[number] == 0:
            self.free.append(number)

    def own(self, number: int) -> int:
        """A block with the same content that nobody else uses: copied if it is shared."""
        if self.uses[number] == 1:
            return number
        copy = self.take()
        for store in (self.keys, self.values):
            for layer in store:
                if layer is not None:
                    layer[copy] = layer[number]
        self.give_back(number)
        return copy

    def layer(self, index: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """One layer's storage [block kv_head token d], made to fit these keys and values."""
        stored = []
        for store, new in ((self.keys, k), (self.values, v)):
            old, shape = store[index], (len(self.uses), k.shape[1], self.block, new.shape[3])
            if old is None or old.shape[0] < shape[0]:
                grown = new.new_zeros(shape)
                if old is not None:
                    grown[: old.shape[0]] = old
                store[index] = old = grown
            stored.append(old)
        return stored[0], stored[1]

    def _grow(self) -> None:
        have = len(self.uses)
        if have == self.capacity:
            raise MemoryError(
                f"all {have} blocks of {self.block} tokens are in use; release a cache, or make "
                "the pool with a larger capacity"
            )
        more = min(max(8, have), (self.capacity or 2 * have + 8) - have)
        self.uses += [0] * more
        self.free += range(have + more - 1, have - 1, -1)


@dataclass
class PagedCache(KVCache):
    """A KV cache whose sequences live in blocks of a pool.

    Attributes:
        pool: Where the blocks are; None makes one.
        tables: For each sequence, its blocks in order.
    """

    pool: BlockPool = field(default=None)  # pyright: ignore[reportAssignmentType]
    tables: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool is None:
            self.pool = BlockPool(self.n_layers)
        if self.pool.n_layers != self.n_layers:
            raise ValueError(f"the pool is for {self.pool.n_layers} layers, not {self.n_layers}")

    def extend(
        self,
        layer: int,
        k: Float[Tensor, "batch kv_head pos d_head"],
        v: Float[Tensor, "batch kv_head pos d_head"],
    ) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values into blocks; return those of all tokens so far."""
        end = self.length + k.shape[2]
        self._make_room(k.shape[0], end)
        tables = torch.tensor(self.tables, device=k.device)
        slot = torch.arange(self.length, end, device=k.device)
        block, place = tables[:, slot // self.pool.block], slot % self.pool.block
        found = []
        for stored, new in zip(self.pool.layer(layer, k, v), (k, v), strict=True):
            stored[block, :, place] = new.detach().transpose(1, 2)
            pages = stored[tables].transpose(1, 2).flatten(2, 3)
            found.append(pages[:, :, :end])
        return found[0], found[1]

    def fork(self, copies: int = 1) -> "PagedCache":
        """A cache that shares all blocks until either writes; `copies` of each sequence."""
        tables = [
            [self.pool.share(number) for number in table]
            for table in self.tables
            for _ in range(copies)
        ]
        real = None if self.real is None else self.real.repeat_interleave(copies, 0)
        last = {layer: key.repeat_interleave(copies, 0) for layer, key in self._last.items()}
        return PagedCache(
            self.n_layers,
            self.length,
            real,
            self.padded,
            _last=last,
            pool=self.pool,
            tables=tables,
        )

    def release(self) -> None:
        """Give all blocks back; the cache is empty then."""
        for table in self.tables:
            for number in table:
                self.pool.give_back(number)
        self.tables, self.length, self.real, self.padded = [], 0, None, False
        self._last, self._coming = {}, {}

    def _make_room(self, batch: int, end: int) -> None:
        """Blocks up to `end`, and for each sequence its own copy of what will be written into."""
        self.tables = self.tables or [[] for _ in range(batch)]
        first = self.length // self.pool.block
        for table in self.tables:
            table[first:] = [self.pool.own(number) for number in table[first:]]
            while len(table) * self.pool.block < end:
                table.append(self.pool.take())
