"""The last tokens alone: in a causal model, a change at a position reaches none before it.

A run whose edits all lie at or behind a position starts there, on the clean run's keys and values
of what comes before, and its logits before are the clean ones.
"""

from dataclasses import replace

import torch
from torch import Tensor

from interp.attention import Causal, KVCache, Window
from interp.config import TransformerConfig
from interp.sweeps.clean import CleanRun
from interp.sweeps.edits import Intervention

PIECES = 8
"""Runs that start at different positions can't share a batch: so many starts at most."""


def first_of(intervention: Intervention, config: TransformerConfig, length: int) -> int:
    """The position that a run of so many tokens, none a pad, may start at: a few are tried."""
    if intervention.holds_patterns or not _sees_only_before(config):
        return 0
    step = -(-length // PIECES)
    return min(intervention.first, length - 1) // step * step


def _sees_only_before(config: TransformerConfig) -> bool:
    rules = {config.rule(layer) for layer in range(config.n_layers)}
    simple = config.positional != "shortformer" and not config.smeared_keys
    return simple and all(isinstance(rule, Causal | Window) for rule in rules)


def behind(clean: CleanRun, first: int) -> CleanRun:
    """What the clean run had from a position on."""
    if first == 0:
        return clean
    examples, slots = clean.examples, clean.slots
    cache = {name: x[:, first:] for name, x in clean.cache.items()}
    return replace(
        clean,
        examples=replace(
            examples, tokens=examples.tokens[:, first:], targets=examples.targets[:, first:]
        ),
        cache=cache,
        slots=replace(slots, position=slots.position[:, first:], clean=cache),
    )


def keys_before(clean: CleanRun, first: int, layers: range, copies: int) -> KVCache:
    """These layers' clean keys and values before a position, for so many copies of the examples."""
    cache = KVCache(layers.stop)
    for layer in layers:
        call = clean.calls[layer]
        k, v = (x[:, :, :first].repeat(copies, 1, 1, 1) for x in (call.k, call.v))
        cache.extend(layer, k, v)
    rows = copies * len(clean.examples)
    device = clean.examples.tokens.device
    cache.commit(torch.ones(rows, first, dtype=torch.bool, device=device))
    return cache


def with_clean_before(clean: CleanRun, first: int, logits: Tensor, copies: int) -> Tensor:
    """Logits of whole runs, from those of their last tokens."""
    if first == 0:
        return logits
    return torch.cat([clean.logits[:, :first].repeat(copies, 1, 1), logits], 1)
