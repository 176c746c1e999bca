"""Which heads an experiment names, checked against the model and the site."""

from collections.abc import Iterable, Sequence
from typing import Any

from interp.sweeps import SITES, Site
from interp.sweeps.edits import HEAD_AXIS, KEY_VALUE_SITES
from interp.sweeps.subject import has_mlps, key_value_heads, whole_pairs


def head_count(model: Any, site: Site) -> int | None:
    """Heads that a site of this model has; None where it has none."""
    if site not in HEAD_AXIS:
        return None
    return key_value_heads(model) if site in KEY_VALUE_SITES else model.config.n_heads


def all_heads(model: Any, site: Site = "z") -> list[tuple[int, int | None]]:
    """Every (layer, head) of a site, or (layer, None) where it has no heads."""
    n = head_count(model, site)
    heads: Sequence[int | None] = [None] if n is None else range(n)
    return [(layer, head) for layer in range(model.config.n_layers) for head in heads]


def checked_heads(
    model: Any, heads: Iterable[tuple[int, int]], *, site: Site = "z"
) -> list[tuple[int, int | None]]:
    """Pairs (layer, head) of this model, in the order given.

    Raises:
        TypeError: They are no list of pairs of whole numbers.
        ValueError: One is not a pair, is not in the model, or is named twice; or the site counts
            key/value heads, and they are not the query heads.
    """
    n = head_count(model, site)
    if n is None:
        raise ValueError(f"site={site!r} has no heads; name layers: layers=[…]")
    if n != model.config.n_heads:
        raise ValueError(
            f"a head is a query head, and site={site!r} has only {n} key/value heads for "
            f"{model.config.n_heads} of them; name those: kv_heads=[(layer, kv_head)]"
        )
    return _in_range(model, heads, n, "head")


def checked_kv_heads(
    model: Any, heads: Iterable[tuple[int, int]], *, site: Site
) -> list[tuple[int, int | None]]:
    """Pairs (layer, key/value head) of this model, in the order given."""
    if site not in KEY_VALUE_SITES:
        raise ValueError(f"site={site!r} has no key/value heads; name query heads: heads=[…]")
    return _in_range(model, heads, key_value_heads(model), "key/value head")


def checked_layers(
    model: Any, layers: Iterable[int], *, site: Site
) -> list[tuple[int, int | None]]:
    """Layers of a site that has no heads."""
    if site in HEAD_AXIS:
        raise ValueError(f"site={site!r} has heads; name them: heads=[(layer, head)]")
    pairs = [(layer, 0) for layer in layers]
    return [(layer, None) for layer, _ in _in_range(model, pairs, 1, "layer")]


def check_site(model: Any, site: str) -> None:
    """Refuse a site that can't be cut, and a model that has none."""
    if not hasattr(getattr(model, "config", None), "n_layers"):
        raise TypeError(
            "wanted an interp.Transformer, or what interp.wrap(model) makes of a model of another "
            f"library; got {type(model).__name__}. An encoder–decoder is cut with hooks: "
            "model(source, tokens, hooks=…)"
        )
    if site not in CUT_SITES:
        raise ValueError(f"no site {site!r}; there are {', '.join(CUT_SITES)}")
    if site == "mlp_out" and not has_mlps(model):
        raise ValueError("site='mlp_out': this model has no MLPs")


CUT_SITES = ("z", "q", "k", "v", "pattern", "attn_out", "mlp_out", "resid")
assert set(CUT_SITES) <= set(SITES)


def _in_range(
    model: Any, heads: Iterable[tuple[int, int]], n: int, what: str
) -> list[tuple[int, int | None]]:
    checked: list[tuple[int, int | None]] = []
    n_layers = model.config.n_layers
    for layer, head in whole_pairs(heads, name=f"{what}s"):
        if not (0 <= layer < n_layers and 0 <= head < n):
            raise ValueError(
                f"({layer}, {head}) is not in this model: layers 0 … {n_layers - 1}, "
                f"{what}s 0 … {n - 1}"
            )
        if (layer, head) in checked:
            raise ValueError(f"({layer}, {head}) is named twice")
        checked.append((layer, head))
    return checked
