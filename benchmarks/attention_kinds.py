"""Attention that skips what it masks, against fused attention over the whole past.

Time at 16,384 tokens and a window of 256, forward and with gradients; what linear attention costs a
token at 2,048 and at 16,384; memory a token at 16,384 and at 65,536; and what each of two processes
of a ring holds, against one process that does all.
"""

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, multiprocessing
from torch import distributed as dist

from benchmarks.memory import own_peak, peak
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import Action, interleave
from interp.attention import (
    AttentionCall,
    BigBird,
    Causal,
    Longformer,
    Rule,
    Streaming,
    Visible,
    Window,
    fused,
)
from interp.attention.linear import Linear
from interp.attention.ring import ring_attention
from interp.attention.sharding import Ring

HEADS, D_HEAD, WINDOW = 8, 32, 256
LIMITS = {"window": 14.0, "streaming": 10.0, "longformer": 10.0, "bigbird": 6.0}  # times faster
LENGTHS = {"time": 16_384, "short": 2_048, "memory": 16_384, "long": 65_536, "ring": 32_768}
QUICK = {"time": 1_024, "short": 256, "memory": 1_024, "long": 2_048, "ring": 1_024}


def rules(window: int = WINDOW) -> dict[str, Rule]:
    """The kinds that are compared, at one width of window."""
    return {
        "causal": Causal(),
        "window": Window(window),
        "streaming": Streaming(window),
        "longformer": Longformer(window),
        "bigbird": BigBird(window),
        "linear": Linear(),
    }


def measure(*, quick: bool = False, **how: Any) -> Iterator[Measurement]:
    """Time, cost of linear attention a token, memory a token, memory of a ring."""
    lengths = QUICK if quick else LENGTHS
    budget: dict[str, Any] = {"rounds": 9, "warmup": 1} | how
    if quick:
        budget |= {"rounds": 2, "shortest": 0.0}
    yield _forward(lengths["time"], budget)
    yield _training(lengths["time"], budget)
    yield _linear(lengths["short"], lengths["time"], budget)
    for kind in ["window"] if quick else LIMITS:
        yield _memory(kind, lengths)
    yield _ring(lengths["ring"])


def call_of(rule: Rule, n: int, *, gradients: bool = False) -> AttentionCall:
    """Random queries, keys and values under a rule."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, HEADS, n, D_HEAD, generator=generator).requires_grad_(gradients)
        for _ in range(3)
    )
    position = torch.arange(n)[None]
    return AttentionCall(q, k, v, Visible(rule, position, position), D_HEAD**-0.5)


def forward(call: AttentionCall) -> Action:
    """Attention without gradients."""

    @torch.no_grad()
    def run() -> Tensor:
        return fused(call)

    return run


def training(call: AttentionCall) -> Action:
    """Attention and the gradients of q, k and v."""

    def run() -> object:
        return torch.autograd.grad(fused(call).sum(), (call.q, call.k, call.v))

    return run


def _forward(n: int, budget: dict[str, Any]) -> Measurement:
    calls = {name: call_of(rule, n) for name, rule in rules().items()}
    timing = interleave({name: forward(call) for name, call in calls.items()}, **budget)
    checks = [
        Check(f"{name}: times faster than causal", 1 / timing.ratio(name, "causal"), at_least=least)
        for name, least in LIMITS.items()
    ]
    name = f"forward, {n:,} tokens, window {WINDOW}"
    return timed(name, timing, baseline="causal", settings=_settings(n), checks=checks)


def _training(n: int, budget: dict[str, Any]) -> Measurement:
    calls = {name: call_of(rule, n, gradients=True) for name, rule in rules().items()}
    timing = interleave({name: training(call) for name, call in calls.items()}, **budget)
    name = f"forward and backward, {n:,} tokens, window {WINDOW}"
    return timed(name, timing, baseline="causal", settings=_settings(n), checks=[])


def _linear(short: int, long: int, budget: dict[str, Any]) -> Measurement:
    actions = {f"{n:,} tokens": forward(call_of(Linear(), n)) for n in (short, long)}
    first, second = actions
    timing = interleave(actions, **budget)
    per_token = timing.ratio(second, first) * short / long
    check = Check(f"linear: cost a token at {long:,} over {short:,}", per_token, at_most=1.1)
    settings = _settings(long) | {"short": short}
    return timed("linear attention", timing, baseline=first, settings=settings, checks=[check])


def attention_in_memory(kind: str, n: int) -> int:
    """Run one kind once; what `peak` measures."""
    forward(call_of(rules()[kind], n))()
    return n


def _memory(kind: str, lengths: dict[str, int]) -> Measurement:
    """Bytes a token, above what a process with next to no tokens holds."""
    base = peak(attention_in_memory, kind=kind, n=64).bytes
    per_token = {
        f"{n:,} tokens": (peak(attention_in_memory, kind=kind, n=n).bytes - base) / n
        for n in (lengths["memory"], lengths["long"])
    }
    first, second = per_token
    growth = per_token[second] / per_token[first]
    return _counted(
        f"memory a token · {kind}",
        "bytes",
        per_token,
        check=Check(f"{kind}: bytes a token at {second} over {first}", growth, at_most=1.1),
    )


def _ring(n: int) -> Measurement:
    found = {
        "one process": float(_peaks(1, n)[0]),
        "each of two": float(max(_peaks(2, n))),
    }
    share = found["each of two"] / found["one process"]
    return _counted(
        f"memory of a ring · {n:,} tokens, forward and backward",
        "bytes over imports",
        found,
        check=Check("each of two over one process", share, at_most=0.6),
    )


def _counted(name: str, unit: str, found: dict[str, float], *, check: Check) -> Measurement:
    baseline = next(iter(found))
    return Measurement(
        name=name,
        settings=_settings(0),
        unit=unit,
        baseline=baseline,
        medians=found,
        ratios={key: value / found[baseline] for key, value in found.items()},
        samples={key: [value] for key, value in found.items()},
        checks=[check],
    )


def _settings(n: int) -> dict[str, Any]:
    return {"tokens": n, "heads": HEADS, "d_head": D_HEAD, "window": WINDOW}


def _peaks(size: int, n: int) -> list[int]:
    """What each process of a ring holds at most, over what it held before it had any tokens."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_ring_process, (size, n, folder), nprocs=size)
        return [int(Path(folder, str(rank)).read_text()) for rank in range(size)]


def _ring_process(rank: int, size: int, n: int, folder: str) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=size,
        timeout=timedelta(minutes=10),
    )
    _on_shards(Ring.of(timeout=600), 256)  # warm: what libraries hold once
    before = own_peak()
    _on_shards(Ring.of(timeout=600), n)
    Path(folder, str(rank)).write_text(str(own_peak() - before))
    dist.destroy_process_group()


def _on_shards(ring: Ring, n: int) -> None:
    call = call_of(Causal(), n // ring.size, gradients=True)
    z = fused(call) if ring.size == 1 else ring_attention(call.q, call.k, call.v, ring)
    z.sum().backward()
