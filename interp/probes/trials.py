"""One period of the search for induction heads: repeated blocks, and a control beside them."""

from dataclasses import dataclass, field
from math import lcm

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.hooks import HookPoint, Hooks
from interp.probes.copying import Candidates, candidates, copying, readout
from interp.probes.observed import Layer, Model, mixed_and_weights, observe
from interp.probes.sequences import SHORTEST, Room


@dataclass(frozen=True)
class Trial:
    """Sequences whose block has one period, and others with another period: the control.

    The rows, and the distances at which they are looked at, are the same in both. In the control
    they hold no target, and the row has targets elsewhere.

    Attributes:
        period: Length of the block.
        control_period: That of the controls.
        tokens: The repeated blocks, [N T].
        control: The controls, [N T].
        rows: Slots that have an earlier occurrence in both.
        keys: For each number of blocks back, the slot after the earlier occurrence, or −1, [K T].
        among: What the rows should say.
    """

    period: int
    control_period: int
    tokens: Int[Tensor, "n pos"]
    control: Int[Tensor, "n pos"]
    rows: range
    keys: Int[Tensor, "back pos"]
    among: Candidates

    @classmethod
    def drawn(
        cls, room: Room, period: int, *, n: int, length: int, generator: torch.Generator
    ) -> "Trial":
        """Draw both kinds of sequence."""
        other = room.checked([period - 1 if period > SHORTEST else period + 1])[0]
        how = {"n": n, "length": length, "generator": generator}
        tokens, control = room.repeated(period, **how), room.repeated(other, **how)
        # From the least common multiple on, the two have a target at the same distance.
        rows = range(room.start + max(period, other), min(length, room.start + lcm(period, other)))
        if not rows:
            raise ValueError(
                f"{length} positions hold no row that has an earlier occurrence at periods "
                f"{period} and {other}; take a shorter period"
            )
        among = candidates(tokens, start=room.start, period=period, rows=rows)
        keys = _keys(period, start=room.start, length=length)
        return cls(period, other, tokens, control, rows, keys, among)


def _keys(period: int, *, start: int, length: int) -> Int[Tensor, "back pos"]:
    slot = torch.arange(length)
    back = torch.arange(1, length // period + 1)[:, None] * period
    return torch.where(slot - back >= start, slot - back + 1, -1)


@dataclass(frozen=True)
class Outcome:
    """What the heads did in each sequence: tensors [L H N].

    Attributes:
        score: Attention on the targets.
        control: Attention at the same distances in the controls.
        copying: See `copying`.
    """

    score: Float[Tensor, "layer head example"]
    control: Float[Tensor, "layer head example"]
    copying: Float[Tensor, "layer head example"]


def run_trial(model: Model, trial: Trial, *, hooks: Hooks = ()) -> Outcome:
    """Two forward passes, without a pattern in memory."""
    device, read = model.W_U.device, readout(model)
    seen = _Seen(trial, trial.keys.to(device))
    copied: dict[int, Tensor] = {}

    def see_written(z: Tensor, hook: HookPoint) -> None:
        W_O = model.blocks[hook.layer()].attn.W_O
        copied[hook.layer()] = copying(z, W_O, readout=read, among=_moved(trial.among, device))

    observe(model, trial.tokens.to(device), seen.look, hooks=hooks, on_z=see_written)
    beside = _Seen(trial, trial.keys.to(device))
    observe(model, trial.control.to(device), beside.look, hooks=hooks)
    return Outcome(_stacked(seen.shares), _stacked(beside.shares), _stacked(copied))


def _moved(among: Candidates, device: torch.device) -> Candidates:
    return Candidates(among.rows.to(device), among.answer.to(device), among.tokens.to(device))


@dataclass
class _Seen:
    """The share of each head's attention on a trial's keys."""

    trial: Trial
    keys: Int[Tensor, "back pos"]
    shares: dict[int, Float[Tensor, "example head"]] = field(default_factory=dict)

    def look(self, layer: Layer) -> Tensor:
        z, weights = mixed_and_weights(layer, [key[None] for key in self.keys])
        total = torch.stack([w.nan_to_num(nan=0.0) for w in weights]).sum(0)
        rows = slice(self.trial.rows.start, self.trial.rows.stop)
        self.shares[layer.index] = total[:, :, rows].mean(-1)
        return z


def _stacked(by_layer: dict[int, Tensor]) -> Float[Tensor, "layer head example"]:
    return torch.stack([by_layer[layer].T for layer in sorted(by_layer)])
