"""The base of every result: tensors that know their axes, and how they reach a table or a file."""

import html
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas

SHOWN_ROWS = 24  # rows of a table in a repr; the middle of a longer one is left out


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Tensors with named axes, and what they were computed with.

    A subclass is a frozen dataclass. `axes` names the axes of each field that is a tensor (such a
    field may be None: not asked for); every other field is metadata. Along an axis the values are
    0, 1, 2, …, unless `coordinates` names the field (a tensor or a tuple) that holds them:

        @dataclass(frozen=True)
        class Sweep(Result):
            axes = {"effect": ("layer", "head"), "per_example": ("layer", "head", "example")}
            effect: Float[Tensor, "layer head"]
            per_example: Float[Tensor, "layer head example"]
            metric: str

    Raises:
        ValueError: a tensor does not have its axes, or two disagree on an axis's size.
    """

    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    coordinates: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Claimed before @dataclass comes, which would print and compare whole tensors.
        for name in ("__repr__", "__eq__", "__hash__"):
            if name not in vars(cls):
                setattr(cls, name, getattr(super(cls, cls), name))

    def __post_init__(self) -> None:
        unknown = {*self.axes, *self.coordinates.values()} - {f.name for f in fields(self)}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)}: see its axes")
        _ = self.sizes

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The length of each axis."""
        sizes: dict[str, int] = {}
        for name, tensor in self._tensors().items():
            axes = self.axes[name]
            if tensor.ndim != len(axes):
                raise ValueError(
                    f"{type(self).__name__}.{name} wants the axes {list(axes)}, "
                    f"got shape {list(tensor.shape)}"
                )
            for axis, size in zip(axes, tensor.shape, strict=True):
                if sizes.setdefault(axis, size) != size:
                    raise ValueError(
                        f"{type(self).__name__}.{name} has {size} along '{axis}', "
                        f"another field has {sizes[axis]}"
                    )
        return sizes

    def frame(self, field: str | None = None) -> "pandas.DataFrame":
        """A tidy table with one row for each entry of `field` (the first one, if None).

        Columns: its axes, then every field whose axes are among them (a field with fewer axes is
        repeated along the others). Fields with more axes have a table of their own: name one.

        Raises:
            ValueError: no such field, or it was not computed.
        """
        import pandas

        tensors = self._tensors()
        name = field if field is not None else next(iter(tensors), "")
        if name not in tensors:
            raise ValueError(f"there is a table for each of {list(tensors)}, not for {name!r}")
        axes = self.axes[name]
        table = pandas.DataFrame(index=[0])  # of a single number
        if axes:
            along = [self._along(axis) for axis in axes]
            table = pandas.MultiIndex.from_product(along, names=axes).to_frame(index=False)
        shape = tensors[name].shape
        for other, tensor in tensors.items():
            own = self.axes[other]
            if set(own) <= set(axes) and (other == name or other not in self.coordinates.values()):
                order = [own.index(axis) for axis in axes if axis in own]
                sizes = [self.sizes[axis] if axis in own else 1 for axis in axes]
                values = numpy_array(tensor).transpose(order).reshape(sizes)
                table[other] = np.broadcast_to(values, shape).reshape(-1)
        return table

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes: plain lists, numbers and names.

        NaN is None, infinities are the strings "inf" and "-inf"; float32 is written with the
        digits that tell it apart, not with those of a double.
        """
        tensors = self._tensors()
        others = [f.name for f in fields(self) if f.name not in self.axes]
        return {
            "result": type(self).__name__,
            "axes": {name: list(self.axes[name]) for name in tensors},
            "coordinates": dict(self.coordinates),
            "values": {name: plain(tensor) for name, tensor in tensors.items()},
            "metadata": {name: plain(getattr(self, name)) for name in others},
        }

    def save(self, path: str | Path) -> Path:
        """Write the result as JSON, axes and metadata stated, and return the path."""
        return write_atomic(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def to(self, device: torch.device | str) -> Self:
        """The same result with its tensors on `device`."""
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        moved |= {name: tensor.to(device) for name, tensor in self._tensors().items()}
        return type(self)(**moved)

    def _tensors(self) -> dict[str, Tensor]:
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name in self.axes}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def _along(self, axis: str) -> list[Any]:
        values = getattr(self, self.coordinates[axis]) if axis in self.coordinates else None
        if values is None:
            return list(range(self.sizes[axis]))
        return values.tolist() if isinstance(values, Tensor) else list(values)

    def _notes(self) -> list[str]:
        """A line for each field that is not in the table."""
        tensors = self._tensors()
        main = set(self.axes[next(iter(tensors))]) if tensors else set()
        lines = [
            f"{name}: {_summary(tensor, self.axes[name])}"
            for name, tensor in tensors.items()
            if not set(self.axes[name]) <= main
        ]
        others = [f.name for f in fields(self) if f.name not in self.axes]
        return lines + [f"{name}: {_short(getattr(self, name))}" for name in others]

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        if self._tensors():
            shown = {"index": False, "max_rows": SHOWN_ROWS, "line_width": 100}
            lines.append(self.frame().to_string(float_format="{:.4g}".format, **shown))
        return "\n".join(lines + self._notes())

    def _repr_html_(self) -> str:
        parts = [f"<b>{html.escape(type(self).__name__)}</b>"]
        if self._tensors():
            shown = {"index": False, "max_rows": SHOWN_ROWS, "border": 0, "escape": True}
            parts.append(self.frame().to_html(float_format="{:.4g}".format, **shown))
        return "\n".join(parts + [f"<div>{html.escape(note)}</div>" for note in self._notes()])


def numpy_array(tensor: Tensor) -> np.ndarray:
    """The tensor's values as numpy: off the graph and the device; bfloat16 as float32."""
    values = tensor.detach().cpu()
    return (values.float() if values.dtype is torch.bfloat16 else values).numpy()


def plain(value: Any) -> Any:
    """`value` in what JSON can hold (see `Result.to_dict`).

    Raises:
        TypeError: a kind of value that has no form in JSON.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _plain_number(value)
    if isinstance(value, Tensor):
        return plain(numpy_array(value))
    if isinstance(value, np.ndarray | np.generic):
        return _plain_array(np.asarray(value))
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Result):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    raise TypeError(f"a result holds tensors, numbers, text and lists of them, not {type(value)}")


def write_atomic(path: str | Path, data: str | bytes) -> Path:
    """Write a file whole or not at all, and return its path; folders are made as needed."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
    return Path(path)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path beside `path` to write to: it takes the place of `path` when the block ends well.

    Whoever reads, or is killed, sees the old file or the new one, never a part of it. If the
    block raises, the old file stays and nothing is left behind.

    Raises:
        IsADirectoryError: `path` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"wanted the path of a file to write, got the folder {path}; name a file in it, for "
            f"instance {path / 'result.json'}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _plain_number(value: float) -> float | str | None:
    if np.isnan(value):
        return None
    return value if np.isfinite(value) else str(value)


def _plain_array(values: np.ndarray) -> Any:
    if np.iscomplexobj(values):
        raise TypeError("JSON has no complex numbers: keep real and imaginary part apart")
    if values.dtype.kind != "f":
        return values.tolist()
    if values.dtype.itemsize < 8:  # 0.1, not 0.10000000149011612
        values = values.astype("U32").astype(np.float64)
    if np.isfinite(values).all():
        return values.tolist()
    return _each(values.tolist())


def _each(values: Any) -> Any:
    return [_each(v) for v in values] if isinstance(values, list) else _plain_number(values)


def _summary(tensor: Tensor, axes: tuple[str, ...]) -> str:
    """`layer 2 × head 4 × example 512, mean 0.12, from -0.1 to 3.4, 2 NaN`."""
    shape = " × ".join(f"{axis} {n}" for axis, n in zip(axes, tensor.shape, strict=True))
    values = numpy_array(tensor).astype(np.float64)
    seen = values[~np.isnan(values)]
    if seen.size == 0:
        return f"{shape}, all NaN" if values.size else f"{shape}, empty"
    span = f"mean {seen.mean():.4g}, from {seen.min():.4g} to {seen.max():.4g}"
    missing = values.size - seen.size
    return f"{shape}, {span}" + (f", {missing} NaN" if missing else "")


def _short(value: Any) -> str:
    text = f"Tensor {list(value.shape)}" if isinstance(value, Tensor) else str(value)
    return text if len(text) <= 100 else text[:99] + "…"
