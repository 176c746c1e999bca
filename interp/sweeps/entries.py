"""Where a run may start: as late as the interventions of a batch allow.

What is below the first edit is as in the clean run, so it never runs again. A run whose lowest
edits are of z starts behind that layer's attention, from `resid_mid + (z' − z) · W_O`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import TransformerConfig
from interp.hooks import SILENT
from interp.model import Transformer
from interp.sweeps.clean import CleanRun
from interp.sweeps.edits import NOTHING, SITES, Edit, Intervention

Depth = Literal["start", "before", "behind", "end"]


@dataclass(frozen=True, order=True)
class Entry:
    """Where a run comes in.

    Attributes:
        layer: The first layer that has work to do; one past the last at the end.
        depth: "before" that layer, "behind" its attention, at the "end" (only the unembedding
            runs), or from the "start": the tokens.
        first: The first position that runs again (see `suffix.py`).
    """

    layer: int
    depth: Depth
    first: int = 0


START = Entry(0, "start")


def entry_of(intervention: Intervention, config: TransformerConfig) -> Entry:
    """The latest entry that still sees every edit.

    Where what attention writes is normalised once more, it is not linear in z: no start behind it.
    """
    n_layers = config.n_layers
    layer = min((_depth(edit, n_layers) for edit in intervention.edits), default=n_layers)
    if layer == n_layers:
        return Entry(n_layers, "end")
    sites = {edit.site for edit in intervention.edits if _depth(edit, n_layers) == layer}
    linear = config.post_normalization == "none"
    return Entry(layer, "behind" if sites == {"z"} and linear else "before")


def _depth(edit: Edit, n_layers: int) -> int:
    return n_layers if edit.site == "final" else edit.layer


def names_for(entries: Sequence[Entry], model: Transformer) -> set[str]:
    """The activations of the clean run that these entries start from."""
    names = set()
    for entry in entries:
        if entry.depth == "end":
            names.add(final_name(model.config.n_layers))
        elif entry.depth == "before":
            names.add(SITES["resid"].format(entry.layer))
        elif entry.depth == "behind":
            names |= {SITES["z"].format(entry.layer), _behind(model, entry.layer)}
    return names


def final_name(n_layers: int) -> str:
    """The activation that the last norm reads."""
    return SITES["final"].format(n_layers - 1)


def _behind(model: Transformer, layer: int) -> str:
    """Where no MLP reads what attention writes, the block is done behind it."""
    last = "hook_resid_mid" if _mlp_follows(model) else "hook_resid_post"
    return f"blocks.{layer}.{last}"


def _mlp_follows(model: Transformer) -> bool:
    return model.config.d_mlp is not None and not model.config.parallel


@dataclass(frozen=True)
class Resumed:
    """The residual stream [m·B T D] at a layer, and the edits that are still to be made."""

    resid: Float[Tensor, "rows pos d_model"]
    layer: int
    rest: list[Intervention]


def resume(
    model: Transformer, clean: CleanRun, entry: Entry, interventions: Sequence[Intervention]
) -> Resumed:
    """Bring a batch of interventions to where whole layers can run again."""
    n_layers, m = model.config.n_layers, len(interventions)
    full = [i.on_top_of(clean.base) for i in interventions]
    if entry.depth == "end":  # what the base does is done
        stream = clean.cache[final_name(n_layers)].repeat(m, 1, 1)
        return Resumed(_finished(stream, interventions, clean), n_layers, [NOTHING] * m)
    if entry.depth == "before":
        stream = clean.cache[SITES["resid"].format(entry.layer)].repeat(m, 1, 1)
        return Resumed(stream, entry.layer, [_above(i, entry.layer - 1) for i in full])
    rows = [_written(model, clean, entry.layer, i.edits) for i in interventions]
    resid = _rest_of_block(model, entry.layer, torch.cat(rows) if m > 1 else rows[0])
    rest = [_above(i, entry.layer) for i in full]
    if entry.layer + 1 < n_layers:
        return Resumed(resid, entry.layer + 1, rest)
    return Resumed(_finished(resid, rest, clean), n_layers, [NOTHING] * m)


def _finished(resid: Tensor, interventions: Sequence[Intervention], clean: CleanRun) -> Tensor:
    """The final residual stream with the edits that are made there."""
    if not any(i.edits for i in interventions):
        return resid
    parts = resid.split(len(clean.examples))
    rows = [_edited(part, i.edits, clean) for part, i in zip(parts, interventions, strict=True)]
    return torch.cat(rows)


def _edited(stream: Tensor, edits: Sequence[Edit], clean: CleanRun) -> Tensor:
    for edit in edits:
        stream = edit.replacement(stream, clean.slots)
    return stream


def _written(model: Transformer, clean: CleanRun, layer: int, edits: Sequence[Edit]) -> Tensor:
    """The residual stream behind attention, with the heads' writes exchanged."""
    stream = clean.cache[_behind(model, layer)]
    z, W_O = clean.cache[SITES["z"].format(layer)], model.blocks[layer].attn.W_O
    for head, new in _new_z(z, layer, edits, clean).items():
        change = (new - z[:, :, head]).flatten(0, 1).to(stream.dtype)
        stream = torch.addmm(stream.flatten(0, 1), change, W_O[head]).view_as(stream)
    return stream


def _new_z(
    z: Float[Tensor, "B T head d_head"], layer: int, edits: Sequence[Edit], clean: CleanRun
) -> dict[int, Tensor]:
    """The edited heads' z; edits of one head act one after the other."""
    new: dict[int, Tensor] = {}
    for edit in edits:
        if edit.layer != layer:
            continue
        if edit.head is None:
            now = torch.stack([new.get(h, own) for h, own in enumerate(z.unbind(2))], 2)
            whole = edit.replacement(now, clean.slots).expand_as(z)
            new = dict(enumerate(whole.unbind(2)))
        else:
            now = new.get(edit.head, z[:, :, edit.head])
            new[edit.head] = edit.replacement(now, clean.slots)
    return new


def _above(intervention: Intervention, layer: int) -> Intervention:
    edits = tuple(e for e in intervention.edits if e.site == "final" or e.layer > layer)
    return Intervention(edits, intervention.holds_patterns)


def _rest_of_block(model: Transformer, layer: int, resid: Tensor) -> Tensor:
    block: Any = model.blocks[layer]
    if not _mlp_follows(model):
        return resid
    return resid + block.mlp(block.ln2(resid, SILENT), SILENT)
