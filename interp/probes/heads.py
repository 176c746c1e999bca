"""All statistics of all heads in one forward pass, as the model runs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention.tiles import MEMORY
from interp.hooks import HookPoint, Hooks
from interp.probes.matches import Matches
from interp.probes.observed import Layer, Model, Progress, check_model, observe
from interp.probes.row_statistics import Asked, rows_of
from interp.probes.rows import check_ids, check_share, checked_bools, counted_rows
from interp.probes.sums import Sums
from interp.results import Result

Also = Literal["renyi", "max_weight", "top_keys", "per_position"]


@dataclass(frozen=True)
class Statistics(Result):
    """What attention is like, averaged over rows; see `HeadStatistics`."""

    entropy: Tensor
    normalized_entropy: Tensor
    effective_keys: Tensor
    uniform_deficit: Tensor
    previous_token: Tensor
    duplicate_token: Tensor
    induction: Tensor
    sink: Tensor
    mean_distance: Tensor
    write_norm: Tensor
    broad_entropy: Tensor
    renyi_entropy: Tensor | None
    max_weight: Tensor | None
    top_keys_share: Tensor | None


NAMES = tuple(f.name for f in fields(Statistics))


@dataclass(frozen=True)
class PositionStatistics(Statistics):
    """Head statistics at each position of the sequence: tensors [L H T]."""

    axes: ClassVar = dict.fromkeys(NAMES, ("layer", "head", "position"))


@dataclass(frozen=True)
class HeadStatistics(Statistics):
    """Head statistics: tensors [L H], each a mean over the rows that count and have it; else NaN.

    A row has what its mask or window lets it see: it counts for the weight on some key only if it
    may see that key. Beside a sink logit (`sink_logits`), `entropy`, what is made of it,
    `renyi_entropy` and `mean_distance` are of the row over its keys, made to sum to 1; all weights
    (`previous_token`, `duplicate_token`, `induction`, `sink`, `max_weight`, `top_keys_share`) and
    `write_norm` are as they flow, and the weights of a row sum to less than 1. Linear and Performer
    attention have no softmax: there the weights that their features imply are looked at.

    Attributes:
        entropy: Nats, over rows that may see a key.
        normalized_entropy: In shares of the log of the keys that a row may see, over rows that may
            see two or more: 1 uniform, 0 one-hot, at any length.
        effective_keys: exp(mean entropy), in keys: the geometric mean over rows.
        uniform_deficit: log n − entropy in nats, n the keys that a row may see; 0 for uniform. Over
            rows that may see two or more.
        previous_token: Weight on the token before, 0 to 1, over rows that may see it.
        duplicate_token: Weight on all earlier occurrences of the row's token together, 0 to 1, over
            rows that may see one.
        induction: Weight on the tokens right after them, likewise.
        sink: Weight on the first token, 0 to 1, over rows that may see it, without the first rows.
        mean_distance: How many tokens back a head looks, over rows that may see a key.
        write_norm: ‖z W_O‖, what a head writes to the residual stream, over all rows that count.
        broad_entropy: `normalized_entropy` over rows that may see `min_keys` keys or more.
        renyi_entropy: Of order 2, in nats; None unless asked for.
        max_weight: The largest weight of a row, 0 to 1; None unless asked for.
        top_keys_share: The five largest weights together, 0 to 1; None unless asked for.
        n_rows: How many rows counted.
        min_keys: How many keys a row of `broad_entropy` may see at least.
        per_position: The same for each position; None unless asked for.
    """

    axes: ClassVar = dict.fromkeys(NAMES, ("layer", "head"))
    n_rows: int
    min_keys: int
    per_position: PositionStatistics | None

    def near_uniform(self, threshold: float = 0.9) -> list[tuple[int, int]]:
        """Heads (layer, head) whose mean normalised entropy is at least `threshold`.

        Over rows that may see `min_keys` keys or more. Near-uniform is not useless, and not idle:
        look at `write_norm`, and at what cutting the head costs.

        Raises:
            ValueError: The threshold is no share from 0 to 1.
        """
        check_share(threshold)
        found = (self.broad_entropy >= threshold).nonzero().tolist()
        return [(layer, head) for layer, head in found]


def head_statistics(
    model: Model,
    tokens: Int[Tensor, "batch pos"],
    mask: Bool[Tensor, "batch pos"] | None = None,
    *,
    rows: Bool[Tensor, "batch pos"] | None = None,
    also: Collection[Also] = (),
    hooks: Hooks = (),
    progress: Progress | None = None,
    min_keys: int = 8,
    batch_size: int | None = None,
    memory: int = MEMORY,
) -> HeadStatistics:
    """Statistics of all heads in one forward pass, exactly, in O(n) memory.

    Args:
        model: A `Transformer`, or a wrapped model of another library.
        tokens: Token ids.
        mask: True for real tokens; pads are neither rows nor keys.
        rows: Which rows count. None: all real ones but those of `model.config.bos_token`.
        also: What costs a further pass: "renyi", "max_weight", "top_keys"; and "per_position".
        hooks: Interventions to run the model under; a pattern that one asks for is measured as it
            flowed on.
        progress: Called with how many layers are done, and out of how many.
        min_keys: Keys that a row may see at least, to count for `near_uniform`; `least_keys` says
            which number suits short sequences.
        batch_size: Examples at a time; None: all at once. It changes nothing else.
        memory: Bytes that may be held at a time beside a forward pass.

    Raises:
        TypeError: Tokens are not integers; a mask is not of bools; there is no model to run.
        ValueError: Something unknown in `also`; shapes do not fit; a layer has no attention.
    """
    check_model(model)
    check_ids(tokens)
    for name, given in (("mask", mask), ("rows", rows)):
        if given is not None:
            checked_bools(name, given, tokens)
    parts = [_cut(x, tokens, batch_size) for x in (tokens, mask, rows)]
    told = _Told(progress, len(parts[0]) * model.config.n_layers)
    how = {"also": also, "hooks": hooks, "min_keys": min_keys, "memory": memory}
    stream = HeadStatisticsStream(model, progress=told, **how)
    for some, real, counted in zip(*parts, strict=True):
        stream.update(some, mask=real, rows=counted)
    return stream.result()


def _cut(x: Tensor | None, tokens: Tensor, batch_size: int | None) -> Sequence[Any]:
    """Batches of examples; of None, as many."""
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"batch_size must be a whole number, at least 1; got {batch_size!r}")
    size = max(1, len(tokens)) if batch_size is None else batch_size
    return [None] * len(tokens.split(size)) if x is None else x.split(size)


@dataclass
class _Told:
    """Counts the layers of all batches."""

    progress: Progress | None
    total: int
    done: int = 0

    def __call__(self, done: int, total: int) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


class HeadStatisticsStream:
    """Head statistics over a stream of batches: `update` with each, then `result`."""

    def __init__(
        self,
        model: Model,
        *,
        also: Collection[Also] = (),
        hooks: Hooks = (),
        progress: Progress | None = None,
        min_keys: int = 8,
        memory: int = MEMORY,
    ) -> None:
        """As in `head_statistics`."""
        check_model(model)
        listed = isinstance(also, Collection) and not isinstance(also, str)
        if not listed or not all(name in get_args(Also) for name in also):
            raise ValueError(f"`also` is a list of {list(get_args(Also))}, got {also!r}")
        if isinstance(min_keys, bool) or not isinstance(min_keys, int) or min_keys < 2:
            raise ValueError(
                f"a row has an entropy from 2 keys on, a whole number; got min_keys={min_keys!r}"
            )
        self.model, self.hooks, self.progress = model, hooks, progress
        self.also, self.min_keys, self.memory = frozenset(also), min_keys, memory
        self.n_rows = 0
        self._sums = Sums(model.config.n_layers, model.config.n_heads)

    def update(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"] | None = None,
        *,
        rows: Bool[Tensor, "batch pos"] | None = None,
    ) -> Self:
        """Run the model on a batch and add its rows."""
        counted = counted_rows(tokens, mask=mask, rows=rows, bos_token=self.model.config.bos_token)
        costly = self.also - {"per_position"}
        asked = Asked(tokens, mask, counted, Matches.of(tokens, mask), costly, self.memory)
        batch = _Batch(self, asked)
        observe(self.model, tokens, batch.look, mask=mask, hooks=self.hooks, on_z=batch.see_written)
        self.n_rows += int(counted.sum())
        return self

    def result(self) -> HeadStatistics:
        """The means so far.

        Raises:
            RuntimeError: There was no batch yet.
        """
        if not self._sums.total:
            raise RuntimeError("no batch was looked at yet; call .update(tokens) first")
        curves = None
        if "per_position" in self.also:
            curves = PositionStatistics(**self._sums.means(per_position=True))
        means = self._sums.means(per_position=False)
        return HeadStatistics(
            **means, n_rows=self.n_rows, min_keys=self.min_keys, per_position=curves
        )


@dataclass
class _Batch:
    """One forward pass of a stream."""

    stream: HeadStatisticsStream
    asked: Asked
    positions: Tensor | None = None

    def look(self, layer: Layer) -> Tensor:
        """A kernel's work, and the layer's statistics on the way."""
        z, found = rows_of(layer, self.asked)
        visible = layer.call.visible
        few = visible.count() < self.stream.min_keys
        found["broad_entropy"] = found["normalized_entropy"].masked_fill(few, float("nan"))
        self.positions = visible.q_pos if "per_position" in self.stream.also else None
        self.stream._sums.add(layer.index, found, self.positions)
        return z

    def see_written(self, z: Tensor, hook: HookPoint) -> None:
        """The norm of what the heads write, after the hooks."""
        layer = hook.layer()
        found = write_norm(z, self.stream.model.blocks[layer].attn.W_O)
        out = ~self.asked.counted[:, None]
        norms = {"write_norm": found.masked_fill(out, float("nan"))}
        self.stream._sums.add(layer, norms, self.positions)
        if self.stream.progress is not None:
            self.stream.progress(layer + 1, self.stream.model.config.n_layers)


def write_norm(
    z: Float[Tensor, "batch pos head d_head"], W_O: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "batch head pos"]:
    """‖z W_O‖ of each head, through the d_head × d_head products of W_O's rows."""
    wide = torch.promote_types(z.dtype, torch.float32)
    z, W_O = z.to(wide).transpose(1, 2), W_O.to(wide)
    return ((z @ (W_O @ W_O.mT)) * z).sum(-1).clamp(min=0.0).sqrt()
