"""The tasks by name, and what is common to all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch

from interp.tasks.associative_recall import AssociativeRecall, associative_recall_batch
from interp.tasks.balanced_brackets import BalancedBrackets, balanced_brackets_batch
from interp.tasks.batch import SPLITS, UNSCORED, Batch, Split, TaskConfig
from interp.tasks.copy import Copy, copy_batch
from interp.tasks.markov import Markov, markov_batch
from interp.tasks.modular_addition import ModularAddition, modular_addition_batch
from interp.tasks.repeated_tokens import RepeatedTokens, repeated_tokens_batch
from interp.tasks.reverse import Reverse, reverse_batch
from interp.tasks.running_majority import RunningMajority, running_majority_batch
from interp.tasks.sort import Sort, sort_batch
from interp.tasks.text import Text, text_batch
from interp.tasks.trigger_bigrams import TriggerBigrams, trigger_bigrams_batch

Draw = Callable[..., Batch]  # (config, n, generator, *, split)
EXAMPLE_TOKENS = 24


@dataclass(frozen=True)
class Task:
    """A task with its options chosen: `make` gives one, `batch` draws from it."""

    name: str
    config: TaskConfig
    draw: Draw

    def batch(self, n: int, generator: torch.Generator, *, split: Split = "train") -> Batch:
        """`n` sequences of a split, on the CPU; the two splits never share one.

        Raises:
            TypeError: The generator is none.
            ValueError: `n` is not positive, there is no such split, or a generator of another
                device.
        """
        if n < 1:
            raise ValueError(f"a batch has 1 or more sequences, got {n}")
        if split not in SPLITS:
            raise ValueError(f"the splits are {' and '.join(SPLITS)}, got {split!r}")
        if not isinstance(generator, torch.Generator):
            got = type(generator).__name__
            raise TypeError(f"a batch is drawn by a torch.Generator, got {got}")
        if generator.device.type != "cpu":
            raise ValueError(
                f"tasks draw on the CPU, the generator is on {generator.device}: move the batch"
            )
        return self.draw(self.config, n, generator, split=split)

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its value: `make(task.name, **task.options)` is the same task."""
        return dict(vars(self.config))

    @property
    def d_vocab(self) -> int:
        """Number of tokens, special ones included."""
        return self.config.d_vocab

    @property
    def n_ctx(self) -> int:
        """Positions of the longest sequence."""
        return self.config.n_ctx

    @property
    def bos_token(self) -> int | None:
        """The token that every sequence begins with; None if there is none."""
        return self.config.bos_token

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each token."""
        return self.config.labels

    @property
    def description(self) -> str:
        """What the task is, in one line."""
        return (type(self.config).__doc__ or "").partition("\n")[0]

    def example(self) -> str:
        """A sequence, with `token→target` where something is asked; the middle may be left out."""
        batch = self.batch(1, torch.Generator().manual_seed(0))
        real = batch.mask[0]
        said = _sign(self.labels, batch.tokens[0, real].tolist(), batch.targets[0, real].tolist())
        if batch.source is None:
            return said
        source = batch.source[0].tolist()
        return f"{_sign(self.labels, source, [UNSCORED] * len(source))} ⇒ {said}"


def make(name: str, **options: Any) -> Task:
    """The task of that name with the options given, the others at their defaults.

    Lists are taken as tuples, so that options that were saved as JSON can be given back.

    Raises:
        ValueError: no such task or option (the nearest are named), or a value that doesn't fit.
    """
    known = options_of(name)
    config, draw = TASKS[name]
    hints = get_type_hints(config)
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    for option, value in values.items():
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}{_nearest(option, known)}")
        if not _is_a(value, hints[option]):
            raise ValueError(f"{name}: {option} wants {_said(hints[option])}, got {value!r}")
    return Task(name, config(**values), draw)


def options_of(name: str) -> list[str]:
    """The names of a task's options.

    Raises:
        ValueError: There is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}{_nearest(name, list(TASKS))}")
    return list(signature(TASKS[name][0]).parameters)


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=2, cutoff=0.5)
    return f": did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(known)}"


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotation of the kinds that options have."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_is_a(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(v, parts[0]) for v in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def _said(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _sign(labels: tuple[str, ...], tokens: list[int], targets: list[int]) -> str:
    signs = [
        labels[token] if target == UNSCORED else f"{labels[token]}→{labels[target]}"
        for token, target in zip(tokens, targets, strict=True)
    ]
    last = max((i for i, target in enumerate(targets) if target != UNSCORED), default=len(signs))
    signs = signs[: last + 2]
    if len(signs) > EXAMPLE_TOKENS:
        half = EXAMPLE_TOKENS // 2
        signs = [*signs[:half], "…", *signs[-half:]]
    return " ".join(signs)


TASKS: dict[str, tuple[type[TaskConfig], Draw]] = {
    "repeated_tokens": (RepeatedTokens, repeated_tokens_batch),
    "running_majority": (RunningMajority, running_majority_batch),
    "copy": (Copy, copy_batch),
    "sort": (Sort, sort_batch),
    "reverse": (Reverse, reverse_batch),
    "associative_recall": (AssociativeRecall, associative_recall_batch),
    "modular_addition": (ModularAddition, modular_addition_batch),
    "markov": (Markov, markov_batch),
    "balanced_brackets": (BalancedBrackets, balanced_brackets_batch),
    "trigger_bigrams": (TriggerBigrams, trigger_bigrams_batch),
    "text": (Text, text_batch),
}
