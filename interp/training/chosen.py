"""Which heads are meant, by pairs or by layers."""

from interp.config import TransformerConfig

Head = tuple[int, int]
Layers = tuple[int, ...]


def chosen_heads(
    config: TransformerConfig, *, layers: Layers | None, heads: tuple[Head, ...] | None
) -> list[Head]:
    """The heads that are named by pairs (layer, head), or all of some layers; None and None: all.

    Raises:
        ValueError: Both are given, or one of them names what there is not, or one thing twice.
    """
    if layers is not None and heads is not None:
        raise ValueError(f"give layers or heads, not both; got {layers} and {heads}")
    every = [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
    if heads is not None:
        return _known("heads", heads, every)
    known = range(config.n_layers) if layers is None else layers
    _known("layers", known, list(range(config.n_layers)))
    return [at for at in every if at[0] in known]


def _known(name: str, wanted: object, there: list) -> list:
    found = list(wanted) if isinstance(wanted, tuple | range) else []
    odd = [x for x in found if x not in there or not _whole(x)]
    if odd or not found:
        shape = "pairs (layer, head)" if name == "heads" else "layers"
        raise ValueError(f"{name} are {shape} up to {there[-1]}; got {odd[0] if odd else wanted!r}")
    if twice := [x for x in found if found.count(x) > 1]:
        raise ValueError(f"{name}: {twice[0]} is named twice; got {wanted}")
    return found


def _whole(x: object) -> bool:
    """Whether it is made of whole numbers alone: 1.0 and True equal 1, but name no head."""
    return all(map(_whole, x)) if isinstance(x, tuple) else type(x) is int
