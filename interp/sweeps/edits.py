"""Interventions: functions on named activations, and many of them in one batch.

An `Edit` changes one site of one layer, of one head where the site has heads. An `Intervention`
is a set of edits that act in the same run. `hooks_for` stacks interventions along the batch: each
changes its own share of the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.hooks import Hook

Site = Literal[
    "resid", "q", "k", "v", "scores", "pattern", "z", "attn_out", "mlp_in", "mlp_out", "final",
    "q_input", "k_input", "v_input",
]  # fmt: skip

SITES: dict[str, str] = {
    "resid": "blocks.{}.hook_resid_pre",
    "q_input": "blocks.{}.hook_q_input",
    "k_input": "blocks.{}.hook_k_input",
    "v_input": "blocks.{}.hook_v_input",
    "q": "blocks.{}.attn.hook_q",
    "k": "blocks.{}.attn.hook_k",
    "v": "blocks.{}.attn.hook_v",
    "scores": "blocks.{}.attn.hook_attn_scores",
    "pattern": "blocks.{}.attn.hook_pattern",
    "z": "blocks.{}.attn.hook_z",
    "attn_out": "blocks.{}.hook_attn_out",
    "mlp_in": "blocks.{}.hook_mlp_in",
    "mlp_out": "blocks.{}.hook_mlp_out",
    "final": "blocks.{}.hook_resid_post",
}
"""The activation that a site names. "final" is what the last norm reads."""

HEAD_AXIS = {"scores": 1, "pattern": 1} | dict.fromkeys(
    ("q", "k", "v", "z", "q_input", "k_input", "v_input"), 2
)
"""Which axis of a site is its heads; sites that are not named here have none."""

KEY_VALUE_SITES = ("k", "v", "k_input", "v_input")


@dataclass(frozen=True)
class Slots:
    """Where the rows that a change is given stand.

    Attributes:
        position: Each token's absolute position, [b T]; of a pad, that of a neighbour.
        examples: Which examples of the whole batch these are.
        clean: The clean run's activations of these examples, by name; empty if there was none.
    """

    position: Int[Tensor, "b pos"]
    examples: slice
    clean: Mapping[str, Tensor]


Change = Callable[[Tensor, Slots], Tensor]
"""Takes a site of one head, `[B T ...]` (scores and pattern: `[B Tq Tk]`), or of all heads where
the edit names none, without writing into it, and where its rows stand; returns what goes on
instead, or something that broadcasts to it."""


@dataclass(frozen=True)
class Edit:
    """One change of one activation.

    Attributes:
        site: Which activation.
        layer: Of which layer ("final": the last).
        head: Which head; None: all of the site.
        change: What becomes of it.
        positions: Absolute positions of the tokens (of queries, for scores and pattern) that are
            changed; None: all.
    """

    site: Site
    layer: int
    head: int | None
    change: Change
    positions: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The activation's full name."""
        return SITES[self.site].format(self.layer)

    def replacement(self, x: Tensor, slots: Slots) -> Tensor:
        """What becomes of `x`, this edit's head of the site."""
        new = self.change(x, slots)
        if self.positions is None:
            return new
        chosen = _among(slots.position, self.positions)
        rows = 2 if self.head is None and HEAD_AXIS.get(self.site) == 1 else 1
        shape = [1] * x.ndim
        shape[0], shape[rows] = chosen.shape
        return torch.where(chosen.reshape(shape), new, x)

    def write(self, x: Tensor, slots: Slots) -> None:
        """Change the share `x` of an activation in place."""
        part = x if self.head is None else x.select(HEAD_AXIS[self.site], self.head)
        part.copy_(self.replacement(part.clone() if x.requires_grad else part, slots))


def _among(position: Int[Tensor, "b pos"], wanted: tuple[int, ...]) -> Bool[Tensor, "b pos"]:
    return torch.isin(position, torch.tensor(wanted, device=position.device))


@dataclass(frozen=True)
class Intervention:
    """Edits that act in one run.

    Attributes:
        edits: In the order in which edits of one site act.
        holds_patterns: Every attention pattern stays as in the clean run, whatever is edited.
        first: No token before this position is changed, and the changes take the last tokens of
            the examples as well as all of them. 0 promises nothing.
    """

    edits: tuple[Edit, ...] = ()
    holds_patterns: bool = False
    first: int = 0

    def on_top_of(self, base: "Intervention") -> "Intervention":
        """Both, `base` first."""
        holds = self.holds_patterns or base.holds_patterns
        return Intervention((*base.edits, *self.edits), holds)

    def neutral(self) -> "Intervention":
        """Materialise the same patterns, and change nothing."""
        layers = sorted({edit.layer for edit in self.edits if edit.site in ("scores", "pattern")})
        return Intervention(tuple(Edit("pattern", layer, None, as_it_is) for layer in layers))


def as_it_is(x: Tensor, slots: Slots) -> Tensor:
    """No change."""
    return x


NOTHING = Intervention()


def hooks_for(
    interventions: Sequence[Intervention], n_examples: int, slots: Slots
) -> list[tuple[str, Hook]]:
    """One hook for each edited activation of a batch with `n_examples` rows an intervention."""
    edits: dict[str, list[tuple[slice, Edit]]] = {}
    for i, intervention in enumerate(interventions):
        rows = slice(i * n_examples, (i + 1) * n_examples)
        for edit in intervention.edits:
            edits.setdefault(edit.name, []).append((rows, edit))
    return [(name, _hook(those, slots)) for name, those in edits.items()]


def _hook(edits: list[tuple[slice, Edit]], slots: Slots) -> Hook:
    def write_all(x: Tensor, _: Any) -> None:
        for rows, edit in edits:
            edit.write(x[rows], slots)

    return write_all
