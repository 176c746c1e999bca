"""How much is held at once: examples and interventions at a time, within a bound on memory."""

from dataclasses import dataclass
from typing import Any

from interp.sweeps.examples import Examples
from interp.sweeps.subject import widest

MEMORY = 1 << 28
MEMORY_ELSEWHERE = 1 << 32
"""Bytes that the activations of a sweep may take by default, on a CPU and elsewhere."""

CACHES = 1 << 24
"""Bytes in a batch beyond which a CPU's caches no longer hold what runs: larger ones are slower."""


@dataclass(frozen=True)
class Budget:
    """What fits.

    Attributes:
        examples: Examples that are swept at a time.
        interventions: Interventions on these that run at a time.
    """

    examples: int
    interventions: int


def check_memory(memory: object) -> None:
    """Refuse a bound that is no number of bytes.

    Raises:
        TypeError: It is no number.
        ValueError: It is below 1, or no whole number.
    """
    if memory is None:
        return
    if isinstance(memory, bool) or not isinstance(memory, int | float):
        raise TypeError(f"memory is a bound in bytes, a whole number; got {memory!r}")
    if not memory >= 1 or memory != memory // 1:
        raise ValueError(f"memory is a bound in bytes, at least 1; got {memory!r}")


def budget_of(
    model: Any,
    examples: Examples,
    memory: int | None,
    *,
    splits: bool = True,
    patterns: bool = False,
    calls: bool = False,
) -> Budget:
    """Divide a bound between the clean run, which is kept, and the runs that start from it.

    A run's peak is in an MLP or at the logits (twice: their softmax). What one intervention on one
    example takes is always granted.

    Args:
        model: What is run.
        examples: On what.
        memory: The bound in bytes; None: a default.
        splits: Whether the examples may be swept some at a time.
        patterns: Whether runs materialise a layer's pattern (scores, pattern, and one between).
        calls: Whether the clean run's queries, keys and values are kept.

    Raises:
        TypeError: The bound is no number.
        ValueError: It is no number of bytes.
    """
    check_memory(memory)
    (n, length), config = examples.tokens.shape, model.config
    on_cpu = examples.tokens.device.type == "cpu"
    if memory is None:
        memory = MEMORY if on_cpu else MEMORY_ELSEWHERE
    memory = int(memory)  # 1e9 is taken too
    running = 4 * length * (2 * widest(model) + 4 * config.d_model)
    running += 3 * 4 * config.n_heads * length**2 if patterns else 0
    kept = 4 * length * ((5 if calls else 2) * config.n_layers * config.d_model + config.d_vocab)
    some = min(n, max(1, memory // (running + kept))) if splits else n
    left = memory - some * kept
    return Budget(some, max(1, (min(left, CACHES) if on_cpu else left) // (some * running)))
