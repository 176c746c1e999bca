"""Activation patching: carry one activation from one run over into another."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.hooks import Hooks
from interp.metrics import Metric
from interp.patching.outcomes import HeadPatching, PositionPatching, patched
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
    metric_name,
    run,
)
from interp.sweeps.edits import HEAD_AXIS, KEY_VALUE_SITES
from interp.sweeps.subject import check_runnable, has_mlps, key_value_heads

PATCH_SITES = ("z", "q", "k", "v", "pattern", "attn_out", "mlp_out", "resid")


def activation_patching(
    model: Any,
    clean: Any,
    corrupted: Any,
    *,
    site: Site = "z",
    metric: str | Metric = "logit_difference",
    direction: str = "denoising",
    by: str | None = None,
    mask: Bool[Tensor, "B T"] | None = None,
    hooks: Hooks = (),
    memory: int | None = None,
    progress: Progress | None = None,
) -> HeadPatching | PositionPatching:
    """Carry each head, or each position of each layer, over from one run into the other.

    Each runs from where it differs: from its layer up, and, by position in a causal model without
    pads, on the tokens at and behind it only.

    Args:
        model: Ours, or a wrapped one.
        clean: Tokens or a Batch: its targets are asked of both.
        corrupted: Tokens or a Batch of the same shape and padding.
        site: What is carried over: z, q, k, v or pattern, which have heads, or attn_out, mlp_out
            or resid (what enters a layer). There are no others here.
        metric: A name of `METRICS`, "kl" (against the clean run), or a function.
        direction: "denoising" (clean into corrupted: what suffices) or "noising" (corrupted into
            clean: what is needed).
        by: "head" gives [L H], "position" [L T]. None: heads where the site has them.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under.
        memory: Bytes that the activations of one batch of runs may take.
        progress: Called with (done, total); may raise to cancel.

    Raises:
        TypeError: There is no model to run, or the metric is none.
        ValueError: There is no such site, direction or metric; the two batches don't correspond.

    Returns:
        `.effect`, patched minus base, exactly 0 where both runs agree; `.recovery`, as a share of
        the way to the source.

    Source: Vig et al. 2020 and Meng et al. 2022; directions as in Heimersheim & Nanda 2024, "How
    to Use and Interpret Activation Patching".
    """
    by = checked_by(model, site, by)
    ends = ends_of(
        model, clean, corrupted, direction=direction, metric=metric, mask=mask, hooks=hooks
    )
    names = [SITES[site].format(layer) for layer in range(model.config.n_layers)]
    base = recorded(model, ends.base, names, ends.measure, hooks)
    source = recorded(model, ends.source, names, ends.measure, hooks)
    patches = [
        Patch(site, layer, column, by)
        for layer in range(model.config.n_layers)
        for column in range(n_columns(model, ends, site, by))
    ]
    differs = [p for p in patches if p.differs(base, source, ends)]
    plan = Plan(ends.measure, memory, hooks, progress)
    outcome = run(model, ends.base, [p.intervention(source) for p in differs], plan)
    effects = outcome.clean.new_zeros(len(patches), len(ends.base))
    effects[[patches.index(p) for p in differs]] = outcome.effects
    about = {"direction": direction, "site": site, "metric": metric_name(metric)}
    grid = effects.view(model.config.n_layers, -1, len(ends.base))
    values = (base.values, source.values)
    return patched(grid, values, ends.base.weights, by=by, method="patching", **about)


def checked_by(model: Any, site: str, by: str | None) -> str:
    """What the columns of a result are.

    Raises:
        TypeError: There is no model to run.
        ValueError: There is no such site, or it has no heads.
    """
    check_runnable(model)
    if site not in PATCH_SITES:
        raise ValueError(f"no site {site!r} to patch; there are {', '.join(PATCH_SITES)}")
    if site == "mlp_out" and not has_mlps(model):
        raise ValueError("site='mlp_out': this model has no MLPs; take another site")
    if by not in (None, "head", "position"):
        raise ValueError(f"by is 'head' or 'position', got {by!r}")
    if by == "head" and site not in HEAD_AXIS:
        raise ValueError(f"site={site!r} has no heads; take by='position'")
    if by is None:
        return "head" if site in HEAD_AXIS else "position"
    return by


def n_columns(model: Any, ends: Ends, site: Site, by: str) -> int:
    """Heads of the site, or positions of the longest example."""
    if by == "head":
        return key_value_heads(model) if site in KEY_VALUE_SITES else model.config.n_heads
    mask = ends.base.mask
    return ends.base.tokens.shape[1] if mask is None else int(mask.sum(1).max())


@dataclass(frozen=True)
class Patch:
    """One activation that is carried over: a head of a layer, or a position of it."""

    site: Site
    layer: int
    column: int
    by: str

    @property
    def name(self) -> str:
        """The activation's full name."""
        return SITES[self.site].format(self.layer)

    def intervention(self, source: Recorded) -> Intervention:
        """Carry it over from `source`."""
        whole = source.cache[self.name]

        def change(x: Tensor, slots: Slots) -> Tensor:
            given = whole[slots.examples]
            if self.by == "head":
                return given.select(HEAD_AXIS[self.site], self.column)
            return given if self.site == "pattern" else given[:, -x.shape[1] :]  # the last tokens

        head = self.column if self.by == "head" else None
        positions = (self.column,) if self.by == "position" else None
        first = self.column if self.by == "position" and self.site != "pattern" else 0
        edit = Edit(self.site, self.layer, head, change, positions)
        return Intervention((edit,), first=first)

    def differs(self, base: Recorded, source: Recorded, ends: Ends) -> bool:
        """Whether the runs differ there; a patch that changes nothing need not be run."""
        a, b = base.cache[self.name], source.cache[self.name]
        if self.by == "head":
            axis = HEAD_AXIS[self.site]
            return not torch.equal(a.select(axis, self.column), b.select(axis, self.column))
        rows_axis = 2 if HEAD_AXIS.get(self.site) == 1 else 1
        real = ends.base.mask
        here = absolute_positions(ends.base).expand(len(ends.base), -1) == self.column
        here = here if real is None else here & real
        a, b = a.movedim(rows_axis, 1), b.movedim(rows_axis, 1)
        return not torch.equal(a[here], b[here])
