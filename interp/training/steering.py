"""Losses that include what heads do: statistics of patterns, without the pattern, as penalties.

The statistics are those of `interp.probes.head_statistics`, through the differentiable route of
`interp.attention.AttentionView`: the model goes on running its fused kernels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attention import AttentionCall, AttentionView, Visible, attend
from interp.attention.features import Featured
from interp.attention.masks import positions_of
from interp.attention.pairs import key_at_position
from interp.attention.tiles import of_heads
from interp.config import TransformerConfig
from interp.hooks import Tap
from interp.probes.rows import after_earlier_same, counted_rows, earlier_same
from interp.tasks import Batch
from interp.training.chosen import Head, Layers, chosen_heads
from interp.training.clamps import PATTERNS, Clamp


@dataclass(frozen=True, kw_only=True)
class Steer:
    """A head statistic in the loss: `weight` times its mean is added to the cross entropy, in nats.

    The mean is over the chosen heads, and for each over the rows of the batch that have the
    statistic (BOS and pads have none). A positive weight is a penalty, which pushes the statistic
    down; a negative one is a bonus.

    Attributes:
        statistic: One of `STATISTICS`: entropy in nats, all others in [0, 1].
        weight: What the mean is multiplied with.
        layers: All heads of these layers.
        heads: Pairs (layer, head), in place of layers. Neither: all heads.
        floor: Only what lacks counts: each row adds max(0, floor − statistic), with a positive
            weight. A row of n keys can't have more than log n nats of entropy: for a floor take
            normalized_entropy.
        ceiling: Only what exceeds it counts: max(0, statistic − ceiling), with a positive weight.
    """

    statistic: str
    weight: float
    layers: Layers | None = None
    heads: tuple[Head, ...] | None = None
    floor: float | None = None
    ceiling: float | None = None


@dataclass(frozen=True)
class Seen:
    """What a statistic is of: one layer's rows, with the tokens that they stand for."""

    tokens: Tensor
    mask: Tensor
    counted: Bool[Tensor, "batch pos"]
    visible: Visible


Rows = Callable[[Seen], Bool[Tensor, "batch pos"]]
Value = Callable[[AttentionView, Seen], Float[Tensor, "batch head pos"]]


def _sees(seen: Seen) -> Tensor:
    return seen.counted & (seen.visible.count()[:, 0] >= 1)


def _chooses(seen: Seen) -> Tensor:
    return seen.counted & (seen.visible.count()[:, 0] >= 2)


def _has_previous(seen: Seen) -> Tensor:
    return seen.counted & (positions_of(seen.mask) >= 1)


def _has_earlier(seen: Seen) -> Tensor:
    return seen.counted & earlier_same(seen.tokens, seen.mask).any(-1)


def entropy(view: AttentionView, seen: Seen) -> Tensor:
    """Nats, over rows that see a key."""
    return view.entropy()


def normalized_entropy(view: AttentionView, seen: Seen) -> Tensor:
    """In shares of the log of the keys that a row sees, over rows that see two or more."""
    return view.entropy(normalized=True)


def previous_token(view: AttentionView, seen: Seen) -> Tensor:
    """Weight on the token before."""
    return view.weight_at(key_at_position(view.call.visible, view.call.visible.q_pos - 1))


def sink(view: AttentionView, seen: Seen) -> Tensor:
    """Weight on the first token, in all rows but its own."""
    first = torch.zeros_like(view.call.visible.q_pos)
    return view.weight_at(key_at_position(view.call.visible, first))


def duplicate_token(view: AttentionView, seen: Seen) -> Tensor:
    """Weight on all earlier occurrences of the row's token; it holds a mask of n×n bools."""
    return _share(view, earlier_same(seen.tokens, seen.mask))


def induction(view: AttentionView, seen: Seen) -> Tensor:
    """Weight on the tokens after them; it holds a mask of n×n bools."""
    return _share(view, after_earlier_same(seen.tokens, seen.mask))


def _share(view: AttentionView, keys: Bool[Tensor, "batch q k"]) -> Float[Tensor, "batch head q"]:
    """The weight on a set of keys a row: exp of the log-sum-exp over them less that over all."""
    extra, visible = keys[:, None], view.call.visible
    extra = extra if visible.extra is None else extra & visible.extra
    call = replace(view.call, visible=replace(visible, extra=extra))
    level = AttentionView.of(call, memory=view.memory).log_sum_exp()
    none = level == float("-inf")
    exponent = (level - view.log_sum_exp()).masked_fill(none, 0.0)
    return exponent.exp().clamp(max=1.0).masked_fill(none, 0.0)


STATISTICS: dict[str, tuple[Rows, Value]] = {
    "entropy": (_sees, entropy),
    "normalized_entropy": (_chooses, normalized_entropy),
    "previous_token": (_has_previous, previous_token),
    "duplicate_token": (_has_earlier, duplicate_token),
    "induction": (_has_earlier, induction),
    "sink": (_has_previous, sink),
}
"""By name: which rows have the statistic, and its values. A target that a layer's rule hides from
a row counts as 0."""


def check_steers(
    steers: Sequence[Steer], clamps: Sequence[Clamp], config: TransformerConfig
) -> None:
    """Refuse what this model can't be steered by; the clamps are checked already.

    Raises:
        ValueError: An unknown statistic, head or layer; a weight or bound that does nothing; a
            layer without softmax, or whose pattern is held.
    """
    patterns = [clamp for clamp in clamps if clamp.to in PATTERNS]
    held = {at for c in patterns for at in chosen_heads(config, layers=c.layers, heads=c.heads)}
    for steer in steers:
        if steer.statistic not in STATISTICS:
            known = ", ".join(STATISTICS)
            raise ValueError(f"a statistic to steer by is one of {known}; got {steer.statistic!r}")
        _check_numbers(steer)
        heads = chosen_heads(config, layers=steer.layers, heads=steer.heads)
        if both := held & set(heads):
            raise ValueError(f"the pattern of head {min(both)} is held: it can't be steered too")
        plain = not any(isinstance(config.rule(layer), Featured) for layer, _ in heads)
        if not plain or config.sink_logits:
            raise ValueError("heads are steered where weights are a softmax without a sink logit")


def _check_numbers(steer: Steer) -> None:
    numbers = [x for x in (steer.weight, steer.floor, steer.ceiling) if x is not None]
    plain = [isinstance(x, int | float) and not isinstance(x, bool) for x in numbers]
    if not all(plain) or not all(map(math.isfinite, numbers)):
        raise ValueError(f"weight, floor and ceiling are finite numbers; got {steer}")
    if steer.floor is not None and steer.ceiling is not None:
        raise ValueError(f"give floor or ceiling: two Steers make a band; got {steer}")
    bounded = steer.floor is not None or steer.ceiling is not None
    if steer.weight == 0 or (bounded and steer.weight < 0):
        raise ValueError(f"weight must not be 0, and be positive with a floor or ceiling; {steer}")


def rows_in(
    steers: Sequence[Steer], config: TransformerConfig, batch: Batch
) -> dict[tuple[str, int], int]:
    """How many rows of a whole batch have each statistic in each layer."""
    found: dict[tuple[str, int], int] = {}
    for steer in steers:
        for layer, _ in chosen_heads(config, layers=steer.layers, heads=steer.heads):
            if (steer.statistic, layer) not in found:
                seen = _seen(batch, config, layer)
                rows = STATISTICS[steer.statistic][0](seen).expand_as(batch.tokens)
                found[steer.statistic, layer] = int(rows.sum())
    return found


def _seen(batch: Batch, config: TransformerConfig, layer: int) -> Seen:
    position, real = positions_of(batch.mask), batch.mask
    visible = Visible(config.rule(layer), position, position, real, real, in_order=False)
    counted = counted_rows(batch.tokens, mask=real, bos_token=config.bos_token)
    return Seen(batch.tokens, real, counted, visible)


@dataclass
class Listener:
    """A kernel that adds up penalties as layers run; its sum is differentiable.

    Attributes:
        steers: What is penalised.
        config: The model's.
        part: The sequences of this call.
        n_rows: Those of the whole batch, from `rows_in`: the parts of a batch then add up to its
            mean, however it is cut.
        terms: What was found so far.
    """

    steers: Sequence[Steer]
    config: TransformerConfig
    part: Batch
    n_rows: dict[tuple[str, int], int]
    terms: list[Float[Tensor, ""]] = field(default_factory=list)

    def __call__(self, call: AttentionCall, tap: Tap) -> Tensor:
        """A layer's attention as ever; its statistics beside it."""
        with torch.autocast(call.q.device.type, enabled=False):
            for steer in self.steers:
                self._listen(steer, call)
        return attend(call, tap)

    def penalty(self) -> Float[Tensor, ""]:
        """This part's share of what is added to the loss, nats."""
        return torch.stack(self.terms).sum()

    def _listen(self, steer: Steer, call: AttentionCall) -> None:
        heads = chosen_heads(self.config, layers=steer.layers, heads=steer.heads)
        own = [head for layer, head in heads if layer == call.layer]
        if not own:
            return
        rows, value = STATISTICS[steer.statistic]
        seen = _seen(self.part, self.config, call.layer)
        view = AttentionView.of(of_heads(call, torch.tensor(own, device=call.q.device)))
        found = _bounded(value(view, seen), steer)
        total = torch.where(rows(seen)[:, None], found, 0.0).sum()
        n_rows = max(1, self.n_rows[steer.statistic, call.layer])
        self.terms.append(total * (steer.weight / (n_rows * len(heads))))


def _bounded(x: Tensor, steer: Steer) -> Tensor:
    if steer.floor is not None:
        return (steer.floor - x).clamp(min=0.0)
    return x if steer.ceiling is None else (x - steer.ceiling).clamp(min=0.0)
