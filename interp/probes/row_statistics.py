"""Every statistic of every row of one layer, with the pattern or without it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention import AttentionView, Causal
from interp.attention.pairs import key_at_position
from interp.probes.detectors import at_distance, first_key, row_shares
from interp.probes.entropies import refuse_unseen, row_entropy
from interp.probes.matches import Matches
from interp.probes.matching import match_weights
from interp.probes.observed import Layer, left_by_sink, mixed
from interp.probes.rows import after_earlier_same, earlier_same

TOP = 5
"""How many keys `top_keys` adds up."""

RENYI = 2.0
"""The order of the Rényi entropy that is offered."""

Rows = dict[str, Float[Tensor, "batch head pos"]]
"""Statistics by name; NaN for a row that has none."""


@dataclass(frozen=True)
class Asked:
    """What is looked for, and in which tokens.

    Attributes:
        tokens: Token ids.
        mask: True for real tokens, or None.
        counted: Which rows count.
        matches: Where tokens were seen before.
        also: What costs more: "renyi", "max_weight", "top_keys".
        memory: Bytes that may be held at a time.
    """

    tokens: Tensor
    mask: Tensor | None
    counted: Bool[Tensor, "batch pos"]
    matches: Matches
    also: frozenset[str]
    memory: int


def rows_of(layer: Layer, asked: Asked) -> tuple[Tensor, Rows]:
    """A layer's z [B H T E], and its statistics: of the pattern as it flowed on."""
    if layer.pattern is None:
        z, found = _without_pattern(layer, asked)
    else:
        z, found = mixed(layer), _with_pattern(layer, asked)
    count = layer.call.visible.count()
    return z, _left_out(_with_derived(found, count), count, asked.counted)


def induction_of(layer: Layer, asked: Asked) -> tuple[Tensor, Float[Tensor, "batch head pos"]]:
    """A layer's z, and of the statistics the induction score alone: some two thirds of the time."""
    if layer.pattern is not None:
        z, found = rows_of(layer, asked)
        return z, found["induction"]
    view = layer.view(asked.memory)
    run = view.moments(view.call.v)
    z, score = (
        run.mixed[0],
        match_weights(view.call, run.log_sum_exp, asked.matches, memory=asked.memory)[1],
    )
    if layer.call.sink is not None:
        left = left_by_sink(layer.call.sink, run.log_sum_exp)
        z, score = z * left[..., None], score * left
    rows = {"induction": score}
    return z, _left_out(rows, layer.call.visible.count(), asked.counted)["induction"]


# --- without the pattern -------------------------------------------------------------------


def _without_pattern(layer: Layer, asked: Asked) -> tuple[Tensor, Rows]:
    """One packed run (z, log-sum-exp, entropy, mean position), then gathers.

    Where a sink logit competes, entropies and distances are of the row made to sum to 1 without it,
    weights as they flow: smaller by the sink's share.
    """
    view = layer.view(asked.memory)
    call, visible = view.call, view.call.visible
    position = visible.k_pos.to(call.q.dtype)[:, None, :, None]
    frequent = asked.matches.frequent if isinstance(visible.rule, Causal) else None
    columns = [] if frequent is None else frequent.features()
    run = view.moments(call.v, position, *columns, entropy=True)
    z, at, *shares = run.mixed
    assert run.entropy is not None
    view.keep(run.log_sum_exp)
    found = _weights(view) | {name: ALSO[name](view) for name in sorted(asked.also)}
    how = {"memory": asked.memory, "largest": frequent is None}
    matched = match_weights(call, run.log_sum_exp, asked.matches, **how)
    if frequent is not None:
        own = view.weight_at(torch.arange(visible.n_q, device=z.device))
        matched = frequent.filled_in(matched, shares, own)
    found |= dict(zip(("duplicate_token", "induction"), matched, strict=True))
    if layer.call.sink is not None:
        left = left_by_sink(layer.call.sink, run.log_sum_exp)
        found = {name: x if name == "renyi" else x * left for name, x in found.items()}
        z = z * left[..., None]
    found["entropy"] = run.entropy
    found["mean_distance"] = visible.q_pos.to(at.dtype)[:, None] - at[..., 0]
    return z, found


def _weights(view: AttentionView) -> Rows:
    """The weight on the token before, and on the first one; NaN where there is none to be seen."""
    visible = view.call.visible
    previous = key_at_position(visible, visible.q_pos - 1)
    first = key_at_position(visible, torch.zeros_like(visible.q_pos))
    first = first.masked_fill(visible.q_pos == 0, -1)
    return {
        "previous_token": view.weight_at(previous, unseen=float("nan")),
        "sink": view.weight_at(first, unseen=float("nan")),
    }


def _renyi(view: AttentionView) -> Tensor:
    return view.renyi_entropy(RENYI)


def _max_weight(view: AttentionView) -> Tensor:
    return view.max_weight()


def _top_share(view: AttentionView) -> Tensor:
    return view.top_keys(TOP).weights.sum(-1)


# --- with the pattern ----------------------------------------------------------------------


def _with_pattern(layer: Layer, asked: Asked) -> Rows:
    p, visible = layer.pattern, layer.call.visible
    assert p is not None
    p = p.to(torch.promote_types(p.dtype, torch.float32))
    seen = visible.grid()
    refuse_unseen(p, seen, asked.counted[:, None])
    back = visible.q_pos[:, :, None] - visible.k_pos[:, None, :]
    targets = {
        "previous_token": at_distance(asked.tokens, 1, asked.mask),
        "sink": first_key(asked.tokens, asked.mask),
        "duplicate_token": earlier_same(asked.tokens, asked.mask),
        "induction": after_earlier_same(asked.tokens, asked.mask),
    }
    shares = {name: _share_seen(p, target, seen) for name, target in targets.items()}
    also = {name: ALSO_OF_PATTERN[name](p) for name in sorted(asked.also)}
    if layer.call.sink is not None:  # made to sum to 1 without it
        p = p / p.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        also |= {"renyi": _renyi_of_pattern(p)} if "renyi" in also else {}
    own = {"entropy": row_entropy(p), "mean_distance": (p * back[:, None]).sum(-1)}
    return own | shares | also


def _share_seen(p: Tensor, target: Tensor, seen: Tensor) -> Float[Tensor, "batch head q"]:
    """The share on the targets that a row may see."""
    if seen.shape[1] == 1:
        target = target & seen[:, 0]
        return row_shares(p, target, target.any(-1))
    target = target[:, None] & seen
    return (p * target).sum(-1).masked_fill(~target.any(-1), float("nan"))


def _renyi_of_pattern(p: Tensor) -> Tensor:
    power = p.pow(RENYI).sum(-1)
    return torch.where(power > 0, power.clamp(min=torch.finfo(p.dtype).tiny).log(), 0.0) / (
        1 - RENYI
    )


def _max_of_pattern(p: Tensor) -> Tensor:
    return p.amax(-1)


def _top_of_pattern(p: Tensor) -> Tensor:
    return p.topk(min(TOP, p.shape[-1]), -1).values.sum(-1)


# --- both ------------------------------------------------------------------------------------


def _with_derived(found: Rows, count: Tensor) -> Rows:
    """The entropy again, in shares of its ceiling and as what it lacks, for two keys or more."""
    most = count.clamp(min=2).to(found["entropy"].dtype).log()
    alone = count < 2
    share = (found["entropy"] / most).masked_fill(alone, float("nan"))
    lack = (most - found["entropy"]).masked_fill(alone, float("nan"))
    return found | {"normalized_entropy": share, "uniform_deficit": lack}


def _left_out(found: Rows, count: Tensor, counted: Bool[Tensor, "batch pos"]) -> Rows:
    out = ~counted[:, None] | (count == 0)
    return {name: x.masked_fill(out, float("nan")) for name, x in found.items()}


ALSO: dict[str, Callable[[AttentionView], Tensor]] = {
    "renyi": _renyi,
    "max_weight": _max_weight,
    "top_keys": _top_share,
}
"""What can be asked for besides, at the price of a further pass."""

ALSO_OF_PATTERN: dict[str, Callable[[Tensor], Tensor]] = {
    "renyi": _renyi_of_pattern,
    "max_weight": _max_of_pattern,
    "top_keys": _top_of_pattern,
}
