"""Where the tokens of a batch were seen before."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.probes.frequent import Frequent, parted
from interp.probes.rows import Bucket, buckets_of, next_slots, pairs_of


@dataclass(frozen=True)
class Matches:
    """Where each token of a batch was seen before, in O(n) memory, for all layers.

    Attributes:
        rows: Flat slots of the later of two equal tokens of one example, where there are few.
        keys: Those of the earlier.
        buckets: The groups of more equal tokens.
        largest: Those of tokens so frequent that a causal layer has a shorter way.
        frequent: That way, or None where there are none.
        after: The flat slot of the real token that follows each slot; the last has its own.
        length: Slots of an example.
    """

    rows: Int[Tensor, " pair"]
    keys: Int[Tensor, " pair"]
    buckets: tuple[Bucket, ...]
    largest: tuple[Bucket, ...]
    frequent: Frequent | None
    after: Int[Tensor, " slot"]
    length: int

    @classmethod
    def of(
        cls, tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None
    ) -> "Matches":
        """Sort the tokens once; pads match nothing."""
        real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        few, many = [], []
        for bucket in buckets_of(tokens, real):
            (few if bucket.n_pairs <= 4 * tokens.numel() else many).append(bucket)
        nothing = torch.zeros(2, 0, dtype=torch.long, device=tokens.device)
        rows, keys = torch.cat([nothing, *(pairs_of(bucket) for bucket in few)], 1)
        after, size = next_slots(real), {"batch": tokens.shape[0], "length": tokens.shape[1]}
        many, largest = parted(many, **size)
        frequent = Frequent.of(largest, after, **size) if largest else None
        return cls(rows, keys, tuple(many), tuple(largest), frequent, after, tokens.shape[1])
