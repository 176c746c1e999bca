"""Where in a model something can be read off: a linear probe at each layer and position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from interp.attention.masks import positions_of
from interp.cache import full_name
from interp.hooks import HookPoint, Hooks
from interp.probes.linear import Fitted, Kind, LinearProbe
from interp.probes.observed import Progress, check_model, counted
from interp.results import Result


@dataclass(frozen=True)
class ProbeSweep(Result):
    """How well a label can be read at each layer and position.

    Attributes:
        score: Held-out accuracy, or R².
        control: The same with shuffled labels.
        selectivity: score − control.
        direction: The probes' weights in the activations' own coordinates; one row for two
            classes (towards the second) and for values.
        positions: Indices among the real tokens; −1: all of them together.
        site: What was read.
        classes: The labels in order; empty for values.
    """

    axes: ClassVar = {
        "score": ("layer", "position"),
        "control": ("layer", "position"),
        "selectivity": ("layer", "position"),
        "direction": ("layer", "position", "out", "d"),
    }
    coordinates: ClassVar = {"position": "positions"}
    score: Float[Tensor, "layer position"]
    control: Float[Tensor, "layer position"]
    selectivity: Float[Tensor, "layer position"]
    direction: Float[Tensor, "layer position out d"]
    positions: tuple[int, ...]
    site: str
    classes: tuple[Any, ...]


def sweep_probes(
    model: Any,
    site: str = "resid_post",
    *,
    tokens: Int[Tensor, "batch pos"],
    labels: Shaped[Tensor, "batch *pos"],
    positions: Sequence[int] | None = None,
    kind: Kind = "logistic",
    penalty: float = 1.0,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> ProbeSweep:
    """Fit a linear probe at every layer, and every position that is asked for.

    Args:
        model: A `Transformer`, or a wrapped model.
        site: An activation of a block by its short name: "resid_pre", "attn_out", "z", …
        tokens: Token ids.
        labels: One for each sequence, or for each token.
        positions: Indices among the real tokens, a probe for each. None: one probe for all.
        kind: "logistic" for classes, "ridge" for values.
        penalty: See `LinearProbe`.
        mask: True for real tokens; pads are not fitted.
        hooks: Interventions to run the model under.
        generator: Draws splits and shuffles. None: a fixed seed, the same for all probes.
        progress: Called with how many probes are fitted, and out of how many.

    Raises:
        LookupError: There is no such activation.
        TypeError: There is no model to run; labels are no tensor.
        ValueError: Labels or positions do not fit the tokens.
    """
    check_model(model)
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    asked = [-1] if positions is None else _checked(positions, real)
    task = _Task(_per_token(labels, tokens), real, kind, penalty, generator)
    layers = _read(model, site, tokens, mask=mask, hooks=hooks)
    places = [(x, position) for x in layers for position in asked]
    found = [task.fitted(*place) for place in counted(places, progress)]
    return _swept(found, tuple(asked), site)


@dataclass(frozen=True)
class _Task:
    """What is to be read off the activations."""

    labels: Shaped[Tensor, "batch pos"]
    real: Bool[Tensor, "batch pos"]
    kind: Kind
    penalty: float
    generator: torch.Generator | None

    def fitted(self, x: Float[Tensor, "batch pos d"], position: int) -> Fitted:
        """A probe at one position, or at all (−1)."""
        at = self.real if position == -1 else self.real & (positions_of(self.real) == position)
        probe = LinearProbe(self.kind, penalty=self.penalty)
        if bool(at.all()):
            probe.fit(x, self.labels, generator=self._drawn())  # whole sequences are held out
        else:
            probe.fit(x[at], self.labels[at], generator=self._drawn())
        assert probe.fitted is not None
        return probe.fitted

    def _drawn(self) -> torch.Generator | None:
        """The same split for every probe."""
        if self.generator is None:
            return None
        return torch.Generator().manual_seed(self.generator.initial_seed())


def _per_token(labels: Tensor, tokens: Int[Tensor, "batch pos"]) -> Shaped[Tensor, "batch pos"]:
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a tensor, got {type(labels).__name__}; use torch.tensor")
    if labels.shape == tokens.shape:
        return labels
    if labels.shape == tokens.shape[:1]:
        return labels[:, None].expand_as(tokens)
    raise ValueError(
        f"wanted a label for each sequence [B] or token [B T] of {list(tokens.shape)}, "
        f"got {list(labels.shape)}"
    )


def _checked(positions: Sequence[int], real: Bool[Tensor, "batch pos"]) -> list[int]:
    n = int(real.sum(-1).max())
    if not positions or not all(0 <= p < n for p in positions):
        raise ValueError(f"positions are indices from 0 to {n - 1}, got {list(positions)}")
    return [int(p) for p in positions]


@torch.no_grad()
def _read(
    model: Any, site: str, tokens: Tensor, *, mask: Tensor | None, hooks: Hooks
) -> list[Float[Tensor, "batch pos d"]]:
    """The activation of each layer, heads beside each other."""
    n_layers = model.config.n_layers
    names = [full_name((site, layer), n_layers) for layer in range(n_layers)]
    kept: dict[str, Tensor] = {}

    def keep(x: Tensor, hook: HookPoint) -> None:
        kept[hook.name] = x.detach().flatten(2).clone()

    model(tokens, mask=mask, hooks=[*hooks, *((name, keep) for name in names)])
    return [kept[name] for name in names]


def _swept(found: list[Fitted], positions: tuple[int, ...], site: str) -> ProbeSweep:
    def grid(name: str) -> Tensor:
        return torch.tensor([getattr(fit, name) for fit in found]).unflatten(0, shape)

    shape = (-1, len(positions))
    return ProbeSweep(
        score=grid("held_out_score"),
        control=grid("control_score"),
        selectivity=grid("selectivity"),
        direction=torch.stack([fit.direction for fit in found]).unflatten(0, shape),
        positions=positions,
        site=site,
        classes=found[0].classes,
    )
