"""All head statistics of a long sequence: time and memory over the forward pass alone.

Ours, `probes.head_statistics`, never holds an n×n pattern. Beside it, what one does otherwise:
have TransformerLens cache the patterns, or Hugging Face return them from eager attention, and
take the same statistics from them. Memory is the peak of a whole process, one for each.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.memory import peak
from benchmarks.model_speed import forward
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import Action, interleave
from interp import probes

TIME_LIMITS = {2048: 1.7, 8192: 1.85}  # head_statistics over the bare forward, by length
REPEATED_LIMIT = 3.0  # the same for one token all along: every earlier key is a match
MEMORY_LIMIT = 1.5  # peak of the process over that of a forward pass
LONGEST, LONGEST_GB = 32_768, 1.2
PEERS_TO = 2048  # tokens up to which other tools are timed in every round
QUICK = 64


def size_of(n: int) -> peers.Size:
    """The model of this benchmark, for sequences of n tokens."""
    return peers.Size(n_layers=2, n_heads=8, d_model=256, d_vocab=512, n_ctx=n, batch=1)


def measure(*, quick: bool = False, only: str = "", **how: Any) -> Iterator[Measurement]:
    """Time at two lengths; memory at those and at 32,768; or what `only` is part of the name of."""
    limits = {QUICK: 100.0} if quick else TIME_LIMITS
    lengths = list(limits) if quick else [*limits, LONGEST]
    wanted = {n: _time_name(n) for n in limits if only in _time_name(n)}
    held = {n: _memory_name(n) for n in lengths if only in _memory_name(n)}
    if not wanted and not held:
        names = [_time_name(n) for n in limits] + [_memory_name(n) for n in lengths]
        raise ValueError(f"nothing is called {only!r}; there are {', '.join(names)}")
    budget = {"rounds": 2, "warmup": 1, "shortest": 0.0} if quick else {"rounds": 9, "warmup": 1}
    for n in wanted:
        yield _times(n, limits[n], budget | how)
    for n in held:
        yield _memory(n, alone=quick)


def _time_name(n: int) -> str:
    return f"head statistics, time · {size_of(n)}"


def _memory_name(n: int) -> str:
    return f"head statistics, peak memory · {size_of(n)}"


# --- time ------------------------------------------------------------------------------


def _times(n: int, limit: float, budget: dict[str, Any]) -> Measurement:
    size, generator = size_of(n), torch.Generator().manual_seed(0)
    bare, tokens = peers.Bare(size, generator), size.tokens(generator)
    model = peers.ours(bare)
    others = _peers_that_fit(bare, tokens)
    actions: dict[str, Action] = {
        "bare forward": forward(bare, tokens),
        "our forward": forward(model, tokens),
        "ours": lambda: probes.head_statistics(model, tokens),
        "ours, one token repeated": lambda: probes.head_statistics(model, tokens * 0),
        **{name: partial(run, tokens) for name, run in others.items()},
    }
    timing = interleave(actions, **budget)
    ratio = partial(timing.ratio, baseline="bare forward")
    checks = [
        Check(f"n = {n}, ours over bare", ratio("ours"), at_most=limit),
        Check(f"n = {n}, one token", ratio("ours, one token repeated"), at_most=REPEATED_LIMIT),
    ]
    how = {"baseline": "bare forward", "settings": asdict(size), "checks": checks}
    return timed(_time_name(n), timing, **how)


def _peers_that_fit(bare: peers.Bare, tokens: Tensor) -> dict[str, Callable[[Tensor], object]]:
    """TransformerLens and Hugging Face, where a round of theirs takes seconds.

    Beyond, they run once each, in a process of their own, where their memory is measured.
    """
    if bare.size.n_ctx > PEERS_TO or not _patterns_fit(bare.size):
        return {}
    bridge, eager = peers.transformer_lens(bare), peers.hugging_face(bare)
    peers.assert_same_logits(bare, {"bridge": bridge, "eager": eager}, tokens=tokens)
    return {
        "TransformerLens": partial(cached_statistics, bridge),
        "Hugging Face, eager": partial(eager_statistics, eager),
    }


# --- memory ----------------------------------------------------------------------------


def _memory(n: int, *, alone: bool) -> Measurement:
    """Peaks of a process each; `alone`, or where patterns don't fit, without the other tools."""
    size = size_of(n)
    ways = ["forward", "ours"] if alone or not _patterns_fit(size) else list(WAYS)
    peaks = {name: peak(in_own_process, way=name, n=n) for name in ways}
    gigabytes = {name: p.bytes / 1e9 for name, p in peaks.items()}
    ratios = {name: g / gigabytes["forward"] for name, g in gigabytes.items()}
    checks = [Check(f"n = {n}, peak over forward's", ratios["ours"], at_most=MEMORY_LIMIT)]
    if n == LONGEST:
        checks.append(Check(f"n = {n}, peak in GB", gigabytes["ours"], at_most=LONGEST_GB))
    return Measurement(
        name=_memory_name(n),
        settings=asdict(size),
        unit="GB",
        baseline="forward",
        medians=gigabytes,
        ratios=ratios,
        samples={name: [g] for name, g in gigabytes.items()},
        checks=checks,
        notes={
            "seconds": {name: p.value for name, p in peaks.items()},
            "patterns_alone_gb": pattern_bytes(size) / 1e9,
            "not_run": [] if alone else [_not_run(name, size) for name in WAYS if name not in ways],
        },
    )


def _not_run(way: str, size: peers.Size) -> str:
    need = pattern_bytes(size) / 1e9
    return f"{way}: not run, the patterns of {size} alone take {need:.1f} GB"


def in_own_process(*, way: str, n: int) -> float:
    """Seconds that one way takes on n random tokens; for a process that ends with it."""
    size, generator = size_of(n), torch.Generator().manual_seed(0)
    bare = peers.Bare(size, generator)
    tokens = size.tokens(generator)
    prepare, run = WAYS[way]
    model = prepare(bare)
    start = time.perf_counter()
    run(model, tokens)
    return time.perf_counter() - start


def pattern_bytes(size: peers.Size) -> int:
    """What the patterns of all layers take in float32; making them takes a multiple."""
    return 4 * size.batch * size.n_layers * size.n_heads * size.n_ctx**2


def _patterns_fit(size: peers.Size) -> bool:
    """Whether three times the patterns fit into free memory; where that is unknown, 8 GB."""
    info = Path("/proc/meminfo")
    free = 8e9
    if info.exists():
        line = next(x for x in info.read_text().splitlines() if x.startswith("MemAvailable:"))
        free = int(line.split()[1]) * 1024
    return 3 * pattern_bytes(size) < free


# --- the other ways --------------------------------------------------------------------


@torch.no_grad()
def cached_statistics(bridge: nn.Module, tokens: Tensor) -> list[dict[str, Tensor]]:
    """Statistics of each layer from the patterns that TransformerLens caches."""
    _, cache = bridge.run_with_cache(tokens, names_filter=lambda x: x.endswith("hook_pattern"))
    return [pattern_statistics(pattern, tokens) for pattern in cache.values()]


@torch.no_grad()
def eager_statistics(model: nn.Module, tokens: Tensor) -> list[dict[str, Tensor]]:
    """Statistics of each layer from the patterns that Hugging Face returns."""
    patterns = model(tokens, output_attentions=True).attentions
    return [pattern_statistics(pattern, tokens) for pattern in patterns]


def pattern_statistics(
    pattern: Float[Tensor, "batch head q k"], tokens: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, "head"]]:
    """Per head, from the n×n pattern: what `head_statistics` gives but for the write norm."""
    n = tokens.shape[1]
    position = torch.arange(n, dtype=pattern.dtype)
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    after = torch.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]  # keys that follow an earlier occurrence
    entropy = -torch.special.xlogy(pattern, pattern).sum(-1)
    return {
        "entropy": entropy.mean((0, 2)),
        "normalized_entropy": (entropy[..., 1:] / (position[1:] + 1).log()).mean((0, 2)),
        "previous_token": pattern.diagonal(-1, -2, -1).mean((0, 2)),
        "duplicate_token": _share(pattern, same),
        "induction": _share(pattern, after),
        "sink": pattern[:, :, 1:, 0].mean((0, 2)),
        "mean_distance": (position - pattern @ position).mean((0, 2)),
    }


def _share(pattern: Tensor, keys: Tensor) -> Float[Tensor, "head"]:
    """Attention on these keys, averaged over the rows that have one."""
    share = (pattern * keys[:, None]).sum(-1)
    return share.mT[keys.any(-1)].mean(0)


Way = tuple[Callable[[peers.Bare], nn.Module], Callable[[nn.Module, Tensor], Any]]
WAYS: dict[str, Way] = {
    "forward": (peers.ours, lambda model, tokens: forward(model, tokens)()),
    "ours": (peers.ours, probes.head_statistics),
    "TransformerLens": (peers.transformer_lens, cached_statistics),
    "Hugging Face, eager": (peers.hugging_face, eager_statistics),
}
