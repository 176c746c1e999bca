"""Path patching: what one head tells another, with all other heads frozen."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.hooks import Hooks
from interp.metrics import Metric
from interp.model import Transformer
from interp.patching.edges import check_parts
from interp.patching.outcomes import HeadPatching, patched
from interp.patching.pairs import Ends, Recorded, ends_of, recorded
from interp.sweeps import (
    SITES,
    Edit,
    Intervention,
    Plan,
    Progress,
    Site,
    Slots,
    absolute_positions,
    evaluating,
    hooks_for,
    metric_name,
    run,
)
from interp.sweeps.subject import whole_pairs

Through = Literal["q", "k", "v"]


def path_patching(
    model: Transformer,
    clean: Any,
    corrupted: Any,
    *,
    receivers: Sequence[tuple[int, int]] | Literal["logits"] = "logits",
    through: Through = "k",
    senders: Sequence[tuple[int, int]] | None = None,
    metric: str | Metric = "logit_difference",
    direction: str = "noising",
    freeze_mlps: bool = True,
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
    memory: int | None = None,
    progress: Progress | None = None,
) -> HeadPatching:
    """Carry each sender's output over, as the receivers see it and nobody else: [L H].

    Everything between sender and receivers is frozen; what the receivers then say flows on.

    Args:
        model: Ours: a wrapped model does not offer what a head reads.
        clean: Tokens or a Batch: its targets are asked.
        corrupted: Tokens or a Batch of the same shape and padding.
        receivers: Pairs (layer, head), whose inputs all get the sender's change; with `through` k
            or v, key/value heads. "logits": what the last norm reads (the direct effect).
        through: Which input of the receivers.
        senders: Pairs (layer, head). None: every head below a receiver. The others are NaN.
        metric: See `activation_patching`.
        direction: See `activation_patching`; "noising" as in the paper.
        freeze_mlps: Whether MLPs between them keep what they wrote. False: they react to the
            sender, heads do not.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.
        memory: Bytes that the activations of one batch of runs may take.
        progress: Called with (done, total); may raise to cancel.

    Raises:
        TypeError: There is no model to run, or heads are no pairs of whole numbers.
        ValueError: The model is wrapped, or has no write of each head; heads are not in it, or no
            sender is below a receiver.

    Source: Wang et al. 2023, "Interpretability in the Wild"; Goldowsky-Dill et al. 2023,
    "Localizing Model Behavior with Path Patching". There the receivers' inputs are set, here the
    sender's change is added to them, so that receivers may feed each other.
    """
    check_parts(model, "paths need what each head reads")
    ends = ends_of(
        model, clean, corrupted, direction=direction, metric=metric, mask=mask, hooks=hooks
    )
    reads = _reads(model, receivers, through)
    chosen = _senders(model, senders, reads)
    told = _Told(model, ends, *_recorded_both(model, ends, hooks), freeze_mlps, hooks)
    plan = Plan(ends.measure, memory, hooks, progress)
    outcome = run(model, ends.base, [told.to_all(sender, reads) for sender in chosen], plan)
    shape = (model.config.n_layers, model.config.n_heads, len(ends.base))
    effects = outcome.clean.new_full(shape, torch.nan)
    for (layer, head), effect in zip(chosen, outcome.effects, strict=True):
        effects[layer, head] = effect
    about = {"direction": direction, "site": _named(receivers, through), "method": "paths"}
    values = (told.base.values, told.source.values)
    about["metric"] = metric_name(metric)
    found = patched(effects, values, ends.base.weights, by="head", **about)
    assert isinstance(found, HeadPatching)
    return found


def _recorded_both(model: Transformer, ends: Ends, hooks: Hooks) -> tuple[Recorded, Recorded]:
    """Every z of both ends, and the base's residual stream."""
    layers = range(model.config.n_layers)
    z = [SITES["z"].format(layer) for layer in layers]
    stream = [SITES["resid"].format(layer) for layer in layers]
    last = SITES["final"].format(model.config.n_layers - 1)
    base = recorded(model, ends.base, [*z, *stream, last], ends.measure, hooks)
    return base, recorded(model, ends.source, z, ends.measure, hooks)


def _named(receivers: Sequence[tuple[int, int]] | Literal["logits"], through: str) -> str:
    if isinstance(receivers, str):
        return f"→ {receivers}"
    return "→ " + " ".join(f"L{layer}H{head}.{through}" for layer, head in receivers)


Read = tuple[Site, int, int | None]
"""Where a receiver reads: a site, its layer (one past the last: the end), its head."""


def _reads(
    model: Transformer, receivers: Sequence[tuple[int, int]] | Literal["logits"], through: str
) -> list[Read]:
    config = model.config
    if isinstance(receivers, str):
        if receivers != "logits":
            raise ValueError(
                f"receivers are 'logits' or pairs [(layer, head), …], got {receivers!r}"
            )
        return [("final", config.n_layers, None)]
    if through not in ("q", "k", "v"):
        raise ValueError(f"heads are reached through 'q', 'k' or 'v', got {through!r}")
    site: Any = f"{through}_input"
    n = config.n_heads if through == "q" else config.kv_heads
    reads: list[Read] = []
    for layer, head in whole_pairs(receivers, name="receivers"):
        if not (0 <= layer < config.n_layers and 0 <= head < n):
            raise ValueError(
                f"receiver ({layer}, {head}) through {through}: this model has layers 0 … "
                f"{config.n_layers - 1} and {n} heads there"
            )
        if (site, layer, head) in reads:
            raise ValueError(f"receiver ({layer}, {head}) is named twice; name it once")
        reads.append((site, layer, head))
    return reads


def _senders(
    model: Transformer, senders: Sequence[tuple[int, int]] | None, reads: list[Read]
) -> list[tuple[int, int]]:
    every = [(n, h) for n in range(model.config.n_layers) for h in range(model.config.n_heads)]
    asked = every if senders is None else whole_pairs(senders, name="senders")
    if not set(asked) <= set(every):
        raise ValueError(f"senders {sorted(set(asked) - set(every))} are not in this model")
    chosen = [sender for sender in asked if any(_below(sender, read) for read in reads)]
    if not chosen:
        raise ValueError("no sender is in a layer below a receiver: there is no path")
    return chosen


def _below(sender: tuple[int, int], read: Read) -> bool:
    return sender[0] < read[1]


class _Told:
    """What a receiver's input changes by when a sender's output is carried over."""

    def __init__(
        self, model: Transformer, ends: Ends, base: Recorded, source: Recorded,
        freeze_mlps: bool, hooks: Hooks,
    ) -> None:  # fmt: skip
        self.model, self.ends, self.base, self.source = model, ends, base, source
        self.freeze_mlps, self.hooks = freeze_mlps, hooks
        self._streams: dict[tuple[int, int], Any] = {}

    def to_all(self, sender: tuple[int, int], reads: list[Read]) -> Intervention:
        """Tell every receiver above the sender."""
        return Intervention(tuple(self.edit(sender, r) for r in reads if _below(sender, r)))

    def edit(self, sender: tuple[int, int], read: Read) -> Edit:
        """Add the change to what the receiver reads."""
        site, layer, head = read
        change = self._change(sender, layer)
        at = min(layer, self.model.config.n_layers - 1)
        return Edit(site, at, head, lambda x, slots: x + change[slots.examples])

    def _change(self, sender: tuple[int, int], layer: int) -> Float[Tensor, "B T d_model"]:
        n, h = sender
        if self.freeze_mlps or self.model.config.d_mlp is None:
            name = SITES["z"].format(n)
            moved = self.source.cache[name][:, :, h] - self.base.cache[name][:, :, h]
            return moved @ self.model.blocks[n].attn.W_O[h]
        if sender not in self._streams:
            self._streams[sender] = self._with_live_mlps(sender)
        name = self._entering(layer)
        return self._streams[sender][name] - self.base.cache[name]

    def _entering(self, layer: int) -> str:
        n_layers = self.model.config.n_layers
        site = "resid" if layer < n_layers else "final"
        return SITES[site].format(min(layer, n_layers - 1))

    def _with_live_mlps(self, sender: tuple[int, int]) -> Any:
        n, h = sender
        n_layers = self.model.config.n_layers
        given = self.source.cache[SITES["z"].format(n)][:, :, h]
        edits = [Edit("z", n, h, lambda x, slots: given[slots.examples])]
        for above in range(n + 1, n_layers):
            was = self.base.cache[SITES["z"].format(above)]
            edits.append(Edit("z", above, None, _frozen(was)))
        slots = Slots(absolute_positions(self.ends.base), slice(None), {})
        own = hooks_for([Intervention(tuple(edits))], len(self.ends.base), slots)
        names = [self._entering(layer) for layer in range(n + 1, n_layers + 1)]
        with evaluating(self.model):
            examples = self.ends.base
            _, cache = self.model.run_with_cache(
                examples.tokens, names, mask=examples.mask, hooks=[*self.hooks, *own]
            )
        return cache


def _frozen(was: Tensor) -> Any:
    return lambda x, slots: was[slots.examples]
