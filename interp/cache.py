"""What a call computed, by name: snapshots, and what is made only when it is read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor

from interp.hooks import Filter, Recipe, matches, nothing_called

NamesFilter = str | Sequence[str] | Callable[[str], bool] | None

Key = str | tuple[str, int] | tuple[str, int, str] | tuple[str, None, str]


def names_to_record(
    wanted: NamesFilter, names: Sequence[str], only_if_named: Iterable[str] = ()
) -> frozenset[str]:
    """The activations that a filter selects.

    Args:
        wanted: A name, a glob, several of them, a predicate, or None for everything.
        names: What the coming call offers.
        only_if_named: Last parts of names that a pattern must spell out to select.

    Raises:
        LookupError: A name or glob selects nothing.
    """
    dear = set(only_if_named)
    if wanted is None:
        return frozenset(name for name in names if name.rpartition(".")[2] not in dear)
    if callable(wanted):
        return frozenset(name for name in names if wanted(name))
    chosen: set[str] = set()
    for pattern in [wanted] if isinstance(wanted, str) else wanted:
        found = [name for name in names if matches(pattern, name)]
        if not found:
            raise LookupError(nothing_called(pattern, names))
        last = pattern.rpartition(".")[2]
        chosen |= {n for n in found if n.rpartition(".")[2] not in dear - {last}}
    return frozenset(chosen)


def full_name(key: Key, n_layers: int) -> str:
    """TransformerLens's short forms: ("pattern", 0), ("scale", 0, "ln1"), ("resid_post", -1).

    Raises:
        TypeError: The key has neither form.
    """
    if not _is_key(key):
        raise TypeError(
            "an activation is read by its name, or by (name, layer) or (name, layer, part): "
            'cache["blocks.0.attn.hook_z"], cache["z", 0], cache["scale", 0, "ln1"]; '
            f"got {key!r}"
        )
    if isinstance(key, str):
        if key in ("embed", "pos_embed"):
            return f"hook_{key}"
        return f"ln_final.hook_{key}" if key in ("scale", "normalized") else key
    name, layer = _ALIASES.get(key[0], key[0]), key[1]
    part = key[2] if len(key) == 3 else _PART_OF.get(name, "")
    name = f"{part}.hook_{name}" if part else f"hook_{name}"
    if layer is None:
        return name
    return f"blocks.{layer + n_layers if layer < 0 else layer}.{name}"


def _is_key(key: object) -> TypeGuard[Key]:
    if not isinstance(key, tuple):
        return isinstance(key, str)
    name, layer, part = (*key, "")[:3] if len(key) in (2, 3) else (None, None, None)
    texts = isinstance(name, str) and isinstance(part, str)
    return texts and (isinstance(layer, Integral) or (layer is None and len(key) == 3))


@dataclass(frozen=True)
class Anatomy:
    """What a cache must know of its model to read the residual stream.

    Attributes:
        n_layers: Number of blocks.
        has_mlp: Whether blocks have MLPs.
        has_mid: Whether there is a residual stream between attention and MLP.
        adds_positions: Whether a position embedding is added to the residual stream.
        centres: Whether the blocks' norms subtract the mean; None: there are none.
        centres_at_end: Likewise for the final norm.
    """

    n_layers: int
    has_mlp: bool
    has_mid: bool
    adds_positions: bool
    centres: bool | None
    centres_at_end: bool | None


class ActivationCache(Mapping[Key, Tensor]):
    """The activations of one call, by full name or short form: `cache["pattern", 0]`.

    Entries are snapshots: no later edit, hook or training step reaches them, and writing into one
    changes no other. Scores, pattern, results and the inside of norms are made when first read,
    unless a hook edited them; then they are what flowed on.
    """

    def __init__(self, entries: Mapping[str, Tensor | Recipe], anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._recorded = dict(entries)
        self._own: dict[str, Tensor] = {}

    def __getitem__(self, key: Key) -> Tensor:
        """One activation.

        Raises:
            KeyError: The call did not record it; the message has the nearest names.
            TypeError: It is neither a name nor a short form.
        """
        name = full_name(key, self.anatomy.n_layers)
        if name not in self._recorded:
            raise KeyError(nothing_called(name, self._recorded))
        if name not in self._own:
            entry = self._recorded[name]
            made = entry if isinstance(entry, Tensor) else entry()
            self._own[name] = made if made.requires_grad else made.clone()
        return self._own[name]

    def __contains__(self, key: object) -> bool:
        return _is_key(key) and full_name(key, self.anatomy.n_layers) in self._recorded

    def __iter__(self) -> Iterator[str]:
        return iter(self._recorded)

    def __len__(self) -> int:
        return len(self._recorded)

    def __repr__(self) -> str:
        return f"ActivationCache of {len(self)} activations: {', '.join(self._recorded)}"

    def stack(self, name: str, part: str | None = None) -> Float[Tensor, "layer ..."]:
        """One activation of every layer: `cache.stack("z")`, `cache.stack("scale", "ln1")`."""
        layers = range(self.anatomy.n_layers)
        keys = [(name, layer) if part is None else (name, layer, part) for layer in layers]
        return torch.stack([self[key] for key in keys])

    def accumulated_resid(
        self, layer: int | None = None, *, incl_mid: bool = False, apply_ln: bool = False
    ) -> tuple[Float[Tensor, "component batch pos d_model"], list[str]]:
        """The residual stream before each layer up to `layer` (None: to the end), and labels.

        Args:
            layer: The last one is what enters this layer; None adds the final stream.
            incl_mid: Also between attention and MLP.
            apply_ln: Scale (and centre) all by what the norm that reads the last one does.
        """
        stop = self.anatomy.n_layers if layer is None else layer
        labels: list[str] = []
        for n in range(stop):
            labels.append(f"blocks.{n}.hook_resid_pre")
            if incl_mid and self.anatomy.has_mid:
                labels.append(f"blocks.{n}.hook_resid_mid")
        labels.append(self._entering(stop))
        stacked = torch.stack([self[label] for label in labels])
        return (self.apply_ln(stacked, layer) if apply_ln else stacked), labels

    def decompose_resid(
        self,
        layer: int | None = None,
        *,
        mode: Literal["all", "attn", "mlp"] = "all",
        heads: bool = False,
        apply_ln: bool = False,
    ) -> tuple[Float[Tensor, "component batch pos d_model"], list[str]]:
        """What embeddings and parts wrote below `layer` (None: all), and labels.

        With `mode="all"` they sum to the residual stream there. With `heads`, a layer's attention
        is given per head, and one component named "biases" holds what no head wrote.
        """
        stop = self.anatomy.n_layers if layer is None else layer
        parts: dict[str, Tensor] = {}
        if mode == "all":
            parts["embed"] = self["embed"]
            if self.anatomy.adds_positions:
                parts["pos_embed"] = self["pos_embed"].expand_as(parts["embed"])
        rest = None
        for n in range(stop):
            if mode != "mlp" and heads:
                result = self["result", n]
                parts |= {f"L{n}H{h}": x for h, x in enumerate(result.unbind(2))}
                left = self["attn_out", n] - result.sum(2)
                rest = left if rest is None else rest + left
            elif mode != "mlp":
                parts[f"{n}_attn_out"] = self["attn_out", n]
            if mode != "attn" and self.anatomy.has_mlp:
                parts[f"{n}_mlp_out"] = self["mlp_out", n]
        if rest is not None:
            parts["biases"] = rest
        stacked = torch.stack(list(parts.values()))
        return (self.apply_ln(stacked, layer) if apply_ln else stacked), list(parts)

    def apply_ln(
        self, components: Float[Tensor, "component batch pos d_model"], layer: int | None = None
    ) -> Float[Tensor, "component batch pos d_model"]:
        """Centre and scale parts of the residual stream as the norm that reads their sum did.

        The norm is that of `layer`'s attention, or the final one. Its gain is not applied.
        """
        if layer is None or layer == self.anatomy.n_layers:
            key, centres = "ln_final.hook_scale", self.anatomy.centres_at_end
        else:
            key, centres = f"blocks.{layer}.ln1.hook_scale", self.anatomy.centres
        if centres is None:
            return components
        if centres:
            components = components - components.mean(-1, keepdim=True)
        return components / self[key]

    def _entering(self, layer: int) -> str:
        if layer < self.anatomy.n_layers:
            return f"blocks.{layer}.hook_resid_pre"
        return f"blocks.{layer - 1}.hook_resid_post"


_IN_ATTN = ("q", "k", "v", "rot_q", "rot_k", "z", "result", "pattern", "attn_scores")
_IN_MLP = ("pre", "pre_linear", "mid", "post")
_PART_OF: dict[str, str] = {**{n: "attn" for n in _IN_ATTN}, **{n: "mlp" for n in _IN_MLP}}

_ALIASES = {
    "attn": "pattern",
    "attn_logits": "attn_scores",
    "query": "q",
    "key": "k",
    "value": "v",
    "mlp_pre": "pre",
    "mlp_post": "post",
}

__all__ = ["ActivationCache", "Anatomy", "Filter", "NamesFilter", "full_name", "names_to_record"]
