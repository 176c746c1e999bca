"""Read or replace a model's activations, by name, while it runs.

A model offers each activation as it makes it, `x = tap("hook_resid_pre", x)`, and goes on with
whatever comes back. Hooks belong to a call, not to the model: nothing is left to reset.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, cast

from torch import Tensor


@dataclass(frozen=True)
class HookPoint:
    """Where a hook is running: the full name of the activation, and a dict of the call's own."""

    name: str
    ctx: dict[str, Any] = field(default_factory=dict)

    def layer(self) -> int:
        """The block's index.

        Raises:
            ValueError: The point is not inside a block.
        """
        parts = self.name.split(".")
        if "blocks" not in parts:
            raise ValueError(f"{self.name!r} is in no layer; only names under blocks.N have one")
        return int(parts[parts.index("blocks") + 1])


Hook = Callable[[Tensor, HookPoint], Tensor | None]
"""Takes an activation and where it is; returns a replacement, or None for "as it is now"."""

Filter = str | Callable[[str], bool]
"""A name, a glob, or a predicate over names."""

Hooks = Sequence[tuple[Filter, Hook]]
"""Pairs, run in this order."""

Recipe = Callable[[], Tensor]


def matches(which: Filter, name: str) -> bool:
    """Whether a name, glob or predicate selects `name`."""
    return fnmatchcase(name, which) if isinstance(which, str) else bool(which(name))


def resolve(hooks: Hooks, names: Collection[str]) -> dict[str, list[Hook]]:
    """Sort hooks by the activation they act on, in order.

    Args:
        hooks: Pairs of (name, glob or predicate, function).
        names: Every name that the coming call will offer.

    Raises:
        LookupError: One of them selects nothing; the message has the nearest names.
        TypeError: An entry is not such a pair.
    """
    found: dict[str, list[Hook]] = {}
    for pair in hooks:
        which, hook = _checked(pair)
        selected = [name for name in names if matches(which, name)]
        if not selected:
            raise LookupError(nothing_called(which, names))
        for name in selected:
            found.setdefault(name, []).append(hook)
    return found


def _checked(pair: Any) -> tuple[Filter, Hook]:
    wanted = "hooks are pairs (name, function(activation, hook))"
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise TypeError(f"{wanted}; got {pair!r}")
    which, hook = pair
    if not (isinstance(which, str) or callable(which)) or not callable(hook):
        raise TypeError(f"{wanted}; got ({which!r}, {hook!r})")
    return cast("tuple[Filter, Hook]", pair)


def nothing_called(which: Filter, names: Collection[str]) -> str:
    """The message for a name that this call offers nowhere."""
    if not isinstance(which, str):
        return f"the predicate {which!r} selects none of the {len(names)} activations of this call"
    near = get_close_matches(which, list(names), n=3, cutoff=0.3)
    hint = f"the nearest are {', '.join(near)}" if near else "see model.hook_names()"
    return f"this call has no activation {which!r}; {hint}"


@dataclass
class Recorder:
    """What a cache keeps of a call: values as they flow on, recipes for what is made on reading."""

    names: Collection[str]
    keep_gradients: bool = False
    entries: dict[str, Tensor | Recipe] = field(default_factory=dict)

    def keep(self, name: str, x: Tensor) -> None:
        """Hold a reference; `Tap` sees to it that nobody writes into it."""
        self.entries[name] = x if self.keep_gradients else x.detach()


class Tap:
    """What a model offers its activations to. `SILENT` is the one without hooks."""

    __slots__ = ("_active", "_backward", "_exposed", "_forward", "_points", "_prefix", "_recorder")

    def __init__(
        self,
        forward: Mapping[str, Sequence[Hook]],
        backward: Mapping[str, Sequence[Hook]] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._forward, self._backward, self._recorder = forward, backward or {}, recorder
        self._active = bool(forward or backward or recorder)
        self._prefix = ""
        self._points: dict[str, HookPoint] = {}
        self._exposed: set[int] = set()  # storages that somebody outside the model may hold

    @property
    def active(self) -> bool:
        """Whether any hook or cache is listening."""
        return self._active

    def __call__(self, name: str, x: Tensor) -> Tensor:
        """Run the hooks of this point, each on what the last one left; record what flows on."""
        return self._run(self._prefix + name, x) if self._active else x

    def wants(self, *names: str) -> bool:
        """Whether a hook asks for any of these, which cost extra to make."""
        if not self._active:
            return False
        full = [self._prefix + name for name in names]
        return any(name in self._forward or name in self._backward for name in full)

    def records(self, *names: str) -> bool:
        """Whether a cache asks for any of these."""
        kept = self._recorder
        return kept is not None and any(self._prefix + name in kept.names for name in names)

    def held(self, x: Tensor) -> Tensor:
        """`x` as a recipe may hold it: off the graph, unless the cache keeps gradients."""
        kept = self._recorder
        return x if kept is None or kept.keep_gradients else x.detach()

    def later(self, name: str, recipe: Recipe) -> None:
        """Let a cache make this activation when it is read, unless it was recorded as it flowed."""
        full = self._prefix + name
        if self._recorder is not None and full in self._recorder.names:
            self._recorder.entries.setdefault(full, recipe)

    def under(self, scope: str) -> "Tap":
        """The same hooks, for the part of the model called `scope`."""
        if not self._active:
            return self
        inner = object.__new__(Tap)
        for slot in Tap.__slots__:
            setattr(inner, slot, getattr(self, slot))
        inner._prefix = f"{self._prefix}{scope}."
        return inner

    def _run(self, name: str, x: Tensor) -> Tensor:
        for hook in self._forward.get(name, ()):
            x = self._ask(hook, name, self._isolated(x))
        for hook in self._backward.get(name, ()):
            self._watch_gradient(hook, name, x)
        if self._recorder is not None and name in self._recorder.names:
            self._recorder.keep(name, x.clone() if name in self._forward else x)
            self._exposed.add(x.untyped_storage().data_ptr())
        return x

    def _isolated(self, x: Tensor) -> Tensor:
        """`x`, or a copy where writing into it could reach a record, a weight or the graph."""
        if x.requires_grad or x.untyped_storage().data_ptr() in self._exposed:
            x = x.clone()
        self._exposed.add(x.untyped_storage().data_ptr())
        return x

    def _point(self, name: str) -> HookPoint:
        return self._points.setdefault(name, HookPoint(name))

    def _ask(self, hook: Hook, name: str, x: Tensor) -> Tensor:
        given = hook(x, self._point(name))
        if given is None:
            return x
        if not isinstance(given, Tensor):
            raise TypeError(
                f"the hook at {name!r} returned {type(given).__name__}; "
                "return a tensor, or None to leave the activation as it is"
            )
        if given.shape != x.shape:
            raise ValueError(
                f"the hook at {name!r} returned shape {list(given.shape)}; "
                f"the activation has {list(x.shape)}"
            )
        if given.dtype != x.dtype:
            raise TypeError(
                f"the hook at {name!r} returned {given.dtype}; the activation is of {x.dtype}: "
                "return x.to(activation)"
            )
        return given

    def _watch_gradient(self, hook: Hook, name: str, x: Tensor) -> None:
        if not x.requires_grad:
            raise RuntimeError(
                f"a backward hook at {name!r} needs gradients there; "
                "call outside torch.no_grad(), with weights that require them"
            )
        x.register_hook(lambda gradient: hook(gradient, self._point(name)))


SILENT = Tap({})
"""The tap of a call that nobody listens to."""

_blocks: ContextVar[tuple[tuple[object, Hooks, Hooks], ...]] = ContextVar("_blocks", default=())


@contextmanager
def listening(owner: object, forward: Hooks, backward: Hooks) -> Iterator[None]:
    """Give hooks to every call of `owner` inside the block, in this thread or task only."""
    token = _blocks.set((*_blocks.get(), (owner, forward, backward)))
    try:
        yield
    finally:
        _blocks.reset(token)


def hooks_in_force(owner: object) -> tuple[list, list]:
    """The forward and backward hooks of the enclosing blocks, outermost first."""
    mine = [(forward, backward) for who, forward, backward in _blocks.get() if who is owner]
    return [pair for f, _ in mine for pair in f], [pair for _, b in mine for pair in b]
