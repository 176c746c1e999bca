"""Which rows of a pattern count, and what is earlier in a sequence than what."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.attention.masks import positions_of


def counted_rows(
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
    bos_token: int | None = None,
) -> Bool[Tensor, "batch pos"]:
    """The rows that a mean goes over: real tokens, without those of BOS; or real ones of `rows`.

    Raises:
        TypeError: `tokens` are not integers, `mask` or `rows` not bools.
        ValueError: Shapes differ, or pads stand where a row is asked for.
    """
    check_ids(tokens)
    real = (
        torch.ones_like(tokens, dtype=torch.bool)
        if mask is None
        else checked_bools("mask", mask, tokens)
    )
    if rows is not None:
        return checked_bools("rows", rows, tokens) & real
    return real if bos_token is None else real & (tokens != bos_token)


def check_ids(tokens: Int[Tensor, "batch pos"]) -> None:
    """Refuse what is no batch of token ids.

    Raises:
        TypeError: It is no tensor of integers.
        ValueError: It has other axes.
    """
    whole = isinstance(tokens, Tensor) and not tokens.is_floating_point()
    if not whole or tokens.dtype not in (torch.int32, torch.int64):
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"wanted token ids [B T], a tensor of integers (tokens.long()); got {got}")
    if tokens.dim() != 2:
        raise ValueError(
            f"wanted token ids [B T], got {list(tokens.shape)}; for one sequence use tokens[None]"
        )


def checked_bools(name: str, x: object, tokens: Tensor) -> Tensor:
    """Bools [B T] that stand beside tokens."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor of bools [B T], got {type(x).__name__}")
    if x.dtype != torch.bool:
        raise TypeError(f"{name} must be bools, got {x.dtype}; use {name}.bool()")
    if x.shape != tokens.shape:
        raise ValueError(f"{name} {list(x.shape)} must have the tokens' shape {list(tokens.shape)}")
    return x


def check_share(threshold: object) -> None:
    """Refuse what is no share.

    Raises:
        ValueError: It is no number from 0 to 1.
    """
    number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:  # pyright: ignore[reportOperatorIssue]
        raise ValueError(f"a threshold of entropy is a share from 0 to 1, got {threshold!r}")


@dataclass(frozen=True)
class Bucket:
    """Groups of slots that hold the same token, in order, of about the same size.

    Attributes:
        slots: Flat slots b·T + t, [G c]; behind a group's end, its first slot again.
        real: True where a slot is the group's own, [G c].
    """

    slots: Int[Tensor, "group place"]
    real: Bool[Tensor, "group place"]

    @property
    def n_pairs(self) -> int:
        """At most how many pairs of equal tokens there are."""
        groups, size = self.slots.shape
        return groups * size * (size - 1) // 2


def buckets_of(tokens: Tensor, real: Tensor, grow: float = 1.5) -> list[Bucket]:
    """Groups by size, each bucket's largest at most `grow` times its smallest."""
    slots = real.flatten().nonzero()[:, 0]
    ids = tokens.long() - tokens.min() if tokens.numel() else tokens.long()
    span = int(ids.max()) + 1 if ids.numel() else 1
    example = torch.arange(tokens.shape[0], device=tokens.device)[:, None]
    keys, order = (ids + example * span).flatten()[slots].sort(stable=True)
    slots = slots[order]
    _, sizes = torch.unique_consecutive(keys, return_counts=True)
    starts = sizes.cumsum(0) - sizes
    starts, sizes = starts[sizes > 1], sizes[sizes > 1]
    by_size = sizes.argsort()
    starts, sizes = starts[by_size], sizes[by_size]
    buckets, first = [], 0
    while first < len(sizes):
        most = int(int(sizes[first]) * grow) + 1
        last = int(torch.searchsorted(sizes, most, right=True))
        buckets.append(_bucket(slots, starts[first:last], sizes[first:last]))
        first = last
    return buckets


def pairs_of(bucket: Bucket) -> Int[Tensor, "2 pair"]:
    """Every two slots of a group, the later first."""
    size = bucket.slots.shape[1]
    later, earlier = torch.tril_indices(size, size, -1, device=bucket.slots.device)
    own = bucket.real[:, later]
    return torch.stack([bucket.slots[:, later][own], bucket.slots[:, earlier][own]])


def _bucket(slots: Tensor, starts: Tensor, sizes: Tensor) -> Bucket:
    place = torch.arange(int(sizes.max()), device=slots.device)
    own = place < sizes[:, None]
    return Bucket(slots[torch.where(own, starts[:, None] + place, starts[:, None])], own)


def next_slots(real: Bool[Tensor, "batch pos"]) -> Int[Tensor, " slot"]:
    """The flat slot of the real token after each; the last one's, and a pad's, are their own."""
    batch, n = real.shape
    order = real.int().argsort(dim=-1, descending=True, stable=True)  # the slot at each position
    following = (positions_of(real) + 1).clamp(max=max(n - 1, 0))
    slot = torch.arange(n, device=real.device)
    ends = (positions_of(real) + 1) >= real.sum(-1, keepdim=True)
    after = torch.where(ends | ~real, slot, order.gather(1, following)) if n else order
    return (after + torch.arange(batch, device=real.device)[:, None] * n).flatten()


def earlier_same(
    tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch q k"]:
    """Whether a key holds the query's token and stands before it; n×n, for patterns at hand."""
    check_ids(tokens)
    n = tokens.shape[1]
    before = torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril(-1)
    same = (tokens[:, :, None] == tokens[:, None, :]) & before
    return same if mask is None else same & mask[:, :, None] & mask[:, None, :]


def after_earlier_same(
    tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch q k"]:
    """Whether a key stands right after an earlier occurrence of the query's token."""
    same = earlier_same(tokens, mask)
    batch, n = tokens.shape
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    after = next_slots(real) - torch.arange(batch, device=tokens.device).repeat_interleave(n) * n
    index = after.view(batch, 1, n).expand(-1, n, -1)
    return (
        torch.zeros_like(same, dtype=torch.uint8)
        .scatter_reduce(2, index, same.to(torch.uint8), "amax")
        .bool()
    )


BROAD = 8  # keys; a row of fewer is near-uniform easily


def least_keys(mask: Bool[Tensor, "batch pos"]) -> int:
    """From how many keys on a row tells whether a head is near-uniform.

    8, where the longest sequence has 16 tokens or more, so that about half of its rows have as
    many. In shorter sequences the last rows alone would: there every row counts that has an
    entropy, from 2 keys on.

    Args:
        mask: True for real tokens.
    """
    return BROAD if int(mask.sum(1).max()) >= 2 * BROAD else 2
