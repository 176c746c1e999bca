"""Named tensors of a checkpoint, read when they are asked for, whatever the file is."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from zipfile import BadZipFile

import torch
from torch import Tensor

Reader = Callable[[], Tensor]


class Tensors:
    """Tensors by name; it knows which were taken, so that none is left out unnoticed.

    Attributes:
        where: What messages call it.
    """

    def __init__(self, readers: Mapping[str, Tensor | Reader], where: str) -> None:
        self.where = where
        self._readers = dict(readers)
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def take(self, name: str, shape: Iterable[int] | None = None) -> Tensor:
        """One tensor.

        Args:
            name: Its name in the file.
            shape: What it must be, where the caller knows.

        Raises:
            ValueError: There is none, or it has another shape.
        """
        if name not in self._readers:
            near = get_close_matches(name, list(self._readers), n=1)
            hint = f" (the nearest is {near[0]!r})" if near else ""
            raise ValueError(f"{self.where}: wanted a tensor {name!r}, there is none{hint}")
        self._taken.add(name)
        reader = self._readers[name]
        found = reader if isinstance(reader, Tensor) else reader()
        if shape is not None and list(found.shape) != list(shape):
            raise ValueError(
                f"{self.where}: {name} is {list(found.shape)}, but the config says {list(shape)}"
            )
        return found.detach()

    def check_all_taken(self, ignored: Iterable[str] = ()) -> None:
        """Refuse tensors that nobody asked for, but for names that match one of these globs.

        Raises:
            ValueError: There are some.
        """
        globs = list(ignored)
        left = [n for n in self._readers if n not in self._taken]
        left = [n for n in left if not any(fnmatchcase(n, glob) for glob in globs)]
        if left:
            shown = ", ".join(sorted(left)[:6]) + (" …" if len(left) > 6 else "")
            raise ValueError(
                f"{self.where}: the config has no place for {shown}; is it this model's config?"
            )

    def with_more(self, more: Mapping[str, Tensor]) -> "Tensors":
        """These and more."""
        return Tensors({**self._readers, **more}, self.where)

    def without_prefix(self, *prefixes: str) -> "Tensors":
        """The same, with the first of these prefixes that a name has cut off."""
        renamed: dict[str, Tensor | Reader] = {}
        for name, reader in self._readers.items():
            cut = next((p for p in prefixes if name.startswith(p)), "")
            renamed[name.removeprefix(cut)] = reader
        return Tensors(renamed, self.where)


def read_tensors(path: str | Path) -> Tensors:
    """Open a file, or a folder of them; nothing is unpickled but tensors and plain containers.

    Safetensors are mapped into memory and read one by one; `.pt`, `.pth` and `.bin` files are
    opened with `weights_only=True`. A state dict may lie under "model" or "state_dict".

    Raises:
        FileNotFoundError: There is none.
        ValueError: A file is broken, holds code, or no tensors.
    """
    path = Path(path)
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted a file of weights, there is none")
    if path.suffix == ".safetensors":
        return Tensors(_safetensors(path), str(path))
    return Tensors(state_dict_in(_torch_file(path), path), str(path))


def _read_folder(folder: Path) -> Tensors:
    for index in sorted(folder.glob("*.index.json")):
        named = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return _read_shards(folder, [folder / name for name in named])
    for pattern in ("*.safetensors", "*.pt", "*.pth", "*.bin"):
        if files := sorted(folder.glob(pattern)):
            return _read_shards(folder, files)
    raise FileNotFoundError(
        f"{folder}: wanted weights (*.safetensors, *.pt, *.bin), there are none"
    )


def _read_shards(folder: Path, files: list[Path]) -> Tensors:
    readers: dict[str, Tensor | Reader] = {}
    for file in files:
        shard = read_tensors(file)
        readers |= shard._readers
    return Tensors(readers, str(folder))


def _safetensors(path: Path) -> dict[str, Reader]:
    from safetensors import SafetensorError, safe_open

    def read(name: str) -> Tensor:
        # Opened anew, so that what was read is unmapped again once it is copied.
        with safe_open(path, framework="pt") as opened:
            return opened.get_tensor(name)

    try:
        with safe_open(path, framework="pt") as opened:
            names = list(opened.keys())
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error})") from error
    return {name: lambda name=name: read(name) for name in names}


def _torch_file(path: Path) -> object:
    start = _start(path)
    if start not in (b"PK", b"\x80\x02"):
        raise ValueError(f"{path}: not a whole file of torch.save, nor of safetensors")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=start == b"PK")
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: holds more than tensors, and nothing else is unpickled; if it is a whole "
            "saved module, its tensors can be read without running any code: pass whole_module=True"
        ) from error
    except (RuntimeError, EOFError, BadZipFile, ValueError, KeyError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: not a whole file of torch.save ({first})") from error


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(2)


def state_dict_in(loaded: object, path: str | Path) -> dict[str, Tensor | Reader]:
    """The tensors of what a file held: itself, or what lies under "model" or "state_dict".

    Raises:
        ValueError: There are none.
    """
    if isinstance(loaded, Mapping):
        for name in ("model", "state_dict"):
            if isinstance(loaded.get(name), Mapping):
                loaded = loaded[name]
                break
    if isinstance(loaded, Mapping):
        found = {k: x for k, x in loaded.items() if isinstance(k, str) and isinstance(x, Tensor)}
        if found:
            return dict(found)
    kind = type(loaded).__name__
    raise ValueError(f"{path}: wanted a dict of named tensors (a state dict), got {kind}")
