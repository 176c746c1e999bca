"""The tensors of a pickled module, read without running any of its code.

Every class and function that a pickle names becomes an inert stand-in that only remembers what it
was given, but for those that put tensors together. So nothing of the module is imported, called
or trusted.
"""

import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from torch import Tensor
from torch._utils import _rebuild_parameter, _rebuild_tensor_v2

from interp.interop.tensors import Reader, Tensors


class Stand:
    """In place of any class or function: takes all arguments, does nothing, keeps its state."""

    def __new__(cls, *_: Any, **__: Any) -> "Stand":
        """An empty one."""
        return object.__new__(cls)

    def __init__(self, *args: Any, **_: Any) -> None:
        self.state: Any = args

    def __setstate__(self, state: Any) -> None:
        """Keep it."""
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forget it."""

    def append(self, value: Any) -> None:
        """Forget it."""

    def extend(self, values: Any) -> None:
        """Forget them."""


class Unpickler(pickle.Unpickler):
    """Finds tensors' own building blocks, and stand-ins for everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle's name stands for."""
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        return _BUILDING_BLOCKS.get((module, name), Stand)


def load(file: Any, **options: Any) -> Any:
    """`pickle.load`, with that unpickler: torch.load asks its pickle module for it."""
    return Unpickler(file, **options).load()


def read_whole_module(path: str | Path) -> tuple[Tensors, Mapping[str, Any] | None]:
    """The tensors of a pickled nn.Module by their state-dict names, and its `cfg` if it has one.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no such pickle, or is broken.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted a pickled module, there is none")
    import interp.interop.whole_module as inert

    try:
        loaded = torch.load(path, map_location="cpu", pickle_module=inert, weights_only=False)
    except (RuntimeError, EOFError, BadZipFile, pickle.UnpicklingError, ValueError) as error:
        raise ValueError(f"{path}: not a whole file of torch.save ({error})") from error
    except (AttributeError, TypeError, IndexError, KeyError) as error:  # a pickle that needs code
        raise ValueError(f"{path}: cannot be read without running its code ({error})") from error
    state = _state(loaded)
    if "_modules" not in state:
        raise ValueError(f"{path}: wanted a pickled module, got a pickled {type(loaded).__name__}")
    found: dict[str, Tensor | Reader] = dict(_tensors(state))
    config = _state(state.get("cfg"))
    return Tensors(found, str(path)), config or None


def _state(thing: Any) -> dict[str, Any]:
    if isinstance(thing, Stand) and isinstance(thing.state, dict):
        return thing.state
    return {}


def _tensors(state: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    for kind in ("_parameters", "_buffers"):
        for name, x in (state.get(kind) or {}).items():
            if isinstance(x, Tensor):
                yield f"{prefix}{name}", x.detach()
    for name, child in (state.get("_modules") or {}).items():
        yield from _tensors(_state(child), f"{prefix}{name}.")


_BUILDING_BLOCKS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "Size"): torch.Size,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
}
