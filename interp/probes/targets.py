"""Attention on a key that is named for each row: anyone's detector, and profiles by distance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention.pairs import key_at_position
from interp.attention.tiles import MEMORY
from interp.hooks import Hooks
from interp.probes.observed import Layer, Model, Progress, check_model, mixed_and_weights, observe
from interp.probes.rows import check_ids, counted_rows
from interp.results import Result

Target = Callable[[Int[Tensor, "batch pos"]], Int[Tensor, "batch pos"]]
"""From tokens to the slot of the key that each row should attend to, −1 for none."""


def head_score(
    model: Model,
    tokens: Int[Tensor, "batch pos"],
    target: Target,
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    progress: Progress | None = None,
    memory: int = MEMORY,
) -> Float[Tensor, "layer head"]:
    """How much each head attends to the key that `target` names, over the rows that have one.

    1 for a head that only looks there, 0 where it never does or may not; NaN without a target.

        probes.head_score(model, tokens, lambda t: torch.arange(t.shape[1]).expand_as(t) - 1)

    Args:
        model: A `Transformer`, or a wrapped model.
        tokens: Token ids.
        target: Your detector.
        mask: True for real tokens.
        rows: Which rows count. None: all real ones but those of BOS.
        hooks: Interventions to run the model under.
        progress: Called with how many layers are done, and out of how many.
        memory: Bytes that may be held at a time beside a forward pass.

    Raises:
        TypeError: There is no model to run; the target is no function.
        ValueError: The target is no slot of a key for each token.
    """
    check_model(model)
    if not callable(target):
        raise TypeError(f"target is a function of tokens, got {type(target).__name__}")
    key = _checked(target(tokens), tokens)
    means = _Means(lambda layer: [key], progress, memory)
    means.run(model, tokens, mask=mask, rows=rows, hooks=hooks)
    return means.result()[..., 0]


def _checked(key: Tensor, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    if not isinstance(key, Tensor) or key.is_floating_point() or key.dtype == torch.bool:
        got = key.dtype if isinstance(key, Tensor) else type(key).__name__
        raise ValueError(f"target(tokens) must give key indices, a tensor of integers; got {got}")
    if key.shape != tokens.shape:
        raise ValueError(
            f"target(tokens) must give a key index for each token, integers {list(tokens.shape)}; "
            f"got {list(key.shape)}"
        )
    n = tokens.shape[1]
    if key.numel() and not (int(key.min()) >= -1 and int(key.max()) < n):
        raise ValueError(
            f"target(tokens) must give slots from 0 to {n - 1}, or -1 for none; "
            f"got {int(key.min())} to {int(key.max())}"
        )
    return key.long()


@dataclass(frozen=True)
class OffsetProfile(Result):
    """How much heads attend to the key some number of tokens back.

    Attributes:
        weight: Mean attention at each distance, over the rows that have a key there.
        n_rows: How many rows have one.
    """

    axes: ClassVar = {"weight": ("layer", "head", "distance"), "n_rows": ("distance",)}
    weight: Float[Tensor, "layer head distance"]
    n_rows: Int[Tensor, " distance"]


def offset_profile(
    model: Model,
    tokens: Int[Tensor, "batch pos"],
    *,
    max_distance: int = 64,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    progress: Progress | None = None,
    memory: int = MEMORY,
) -> OffsetProfile:
    """Each head's mean attention by distance, from 0 (the token itself) to `max_distance`.

    A head that always looks d real tokens back has 1 at d and 0 elsewhere. A distance at which no
    row has a key that it may see gives NaN.

    Args:
        model: A `Transformer`, or a wrapped model.
        tokens: Token ids.
        max_distance: The furthest.
        mask: True for real tokens.
        rows: Which rows count. None: all real ones but those of BOS.
        hooks: Interventions to run the model under.
        progress: Called with how many layers are done, and out of how many.
        memory: Bytes that may be held at a time beside a forward pass.

    Raises:
        TypeError: There is no model to run.
        ValueError: `max_distance` is negative, or no whole number.
    """
    check_model(model)
    if not isinstance(max_distance, int) or max_distance < 0:
        raise ValueError(f"distances are whole numbers from 0 on, got {max_distance=!r}")
    check_ids(tokens)
    back = range(min(max_distance + 1, max(1, tokens.shape[1])))

    def keys(layer: Layer) -> list[Tensor]:
        visible = layer.call.visible
        return [key_at_position(visible, visible.q_pos - distance) for distance in back]

    means = _Means(keys, progress, memory, unseen=float("nan"))
    means.run(model, tokens, mask=mask, rows=rows, hooks=hooks)
    return OffsetProfile(means.result(), means.most_rows())


@dataclass
class _Means:
    """Mean weights on some keys of each row that counts, [L H K].

    Attributes:
        keys: The slots of a layer's keys, each [B|1, T]; −1 for none.
        progress: Told of each layer.
        memory: Bytes that may be held at a time.
        unseen: The weight of a key that the row may not see; NaN leaves the row out.
        found: Means by layer.
        rows: By layer, how many rows have each key.
    """

    keys: Callable[[Layer], list[Tensor]]
    progress: Progress | None
    memory: int
    unseen: float = 0.0
    found: dict[int, Float[Tensor, "head key"]] = field(default_factory=dict)
    rows: dict[int, Int[Tensor, " key"]] = field(default_factory=dict)

    def run(
        self,
        model: Model,
        tokens: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None,
        rows: Bool[Tensor, "batch pos"] | None,
        hooks: Hooks,
    ) -> None:
        config = model.config
        counted = counted_rows(tokens, mask=mask, rows=rows, bos_token=config.bos_token)

        def look(layer: Layer) -> Tensor:
            z = self.look(layer, counted)
            if self.progress is not None:
                self.progress(len(self.found), config.n_layers)
            return z

        observe(model, tokens, look, mask=mask, hooks=hooks)

    def look(self, layer: Layer, counted: Bool[Tensor, "batch pos"]) -> Tensor:
        keys = [key.expand_as(counted).masked_fill(~counted, -1) for key in self.keys(layer)]
        z, weights = mixed_and_weights(layer, keys, unseen=self.unseen, memory=self.memory)
        flat = [w.transpose(0, 1).flatten(1) for w in weights]
        self.found[layer.index] = torch.stack([w.nanmean(-1) for w in flat], -1).float()
        self.rows[layer.index] = torch.stack([(~w.isnan()).sum(-1).amax() for w in flat])
        return z

    def result(self) -> Float[Tensor, "layer head key"]:
        return torch.stack([self.found[layer] for layer in sorted(self.found)])

    def most_rows(self) -> Int[Tensor, " key"]:
        return torch.stack(list(self.rows.values())).amax(0)
