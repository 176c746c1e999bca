"""Streams whose positions are those within the cache, not those in the text.

A query sees its window at the same distances either way. What changes is how far away the sinks
seem: as far as the cache is long, at most, and not as far as the text has run. So keys stay where
they are, rotated once and for all, and only the query is turned back before it meets the sinks.
Scores then are still a function of positions, whole or through a cache. `n_ctx` still bounds the
text; since neither rotations nor biases are weights, a model can be built anew with a longer one.

Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks" §3.2, who keep
keys unrotated and rotate the whole cache anew at each token.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention.call import AttentionCall
from interp.attention.masks import Rule
from interp.attention.streaming import Streaming


def turns_back(
    table: Float[Tensor, "2 n_ctx half"], rules: Iterable[Rule], position: Int[Tensor, "b pos"]
) -> dict[Rule, Float[Tensor, "2 b pos half"]]:
    """For each rule that re-indexes, the rotation from a query's place in the text to its place."""
    found = {}
    for rule in rules:
        if isinstance(rule, Streaming) and rule.positions == "cache":
            cos, sin = table[:, position - rule.place(position)]
            found[rule] = torch.stack([cos, -sin])
    return found


def by_sinks(
    call: AttentionCall, turned: Float[Tensor, "batch head q d_head"], sinks: int
) -> AttentionCall:
    """The call in which sinks meet queries that were turned back: one product of twice the width.

    Args:
        call: As it would be with positions of the text.
        turned: Its queries, turned back.
        sinks: How many keys from the start are sinks.
    """
    sink = (call.visible.k_pos < sinks)[:, None, :, None]
    k = torch.cat([call.k.masked_fill(sink, 0.0), call.k.masked_fill(~sink, 0.0)], -1)
    return replace(call, q=torch.cat([call.q, turned], -1), k=k)


@dataclass(frozen=True)
class StreamingAlibi:
    """The bias −slope · distance, with sinks as far away as they lie in the cache."""

    slopes: tuple[float, ...]
    rule: Streaming

    def __call__(
        self, q_pos: Int[Tensor, "b q"], k_pos: Int[Tensor, "b k"]
    ) -> Float[Tensor, "b head q k"]:
        """The bias of every head, for these positions, in float32."""
        slope = torch.tensor(self.slopes, device=q_pos.device)[:, None, None]
        query, key = q_pos[:, None, :, None], k_pos[:, None, None, :]
        query = torch.where(key < self.rule.sinks, self.rule.place(query), query)
        return -slope * (query - key).abs()
