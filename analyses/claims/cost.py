"""Claims about cost by size, and about how near random features come."""

from collections.abc import Iterator
from functools import partial

import torch

from claims.record import Claim, seconds, slope
from interp.attention import AttentionCall, Causal, Rule, Visible, Window, fused
from interp.attention.kernels import pattern_of
from interp.attention.linear import Linear
from interp.attention.performer import Performer

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
FITTED = (2048, 4096, 8192)  # below, what any call costs flattens the slope
RULES: dict[str, Rule] = {"softmax": Causal(), "window 128": Window(128), "linear": Linear()}
WIDTHS, WINDOWS = (32, 64, 128), (128, 256, 512, 1024)


@torch.no_grad()
def measure(generator: torch.Generator) -> Iterator[Claim]:
    """All of them."""
    times = {n: _timed(dict(RULES), n, generator) for n in LENGTHS}
    yield crossover(times)
    yield exponents(times, generator)
    yield performer(generator)


def _timed(
    rules: dict[str, Rule], n: int, generator: torch.Generator, d_head: int = 32
) -> dict[str, float]:
    calls = {name: _call(rule, n, generator, d_head=d_head) for name, rule in rules.items()}
    return seconds({name: partial(fused, call) for name, call in calls.items()}, rounds=3)


def _call(
    rule: Rule, n: int, generator: torch.Generator, *, size: float = 1.0, d_head: int = 32
) -> AttentionCall:
    q, k, v = size * torch.randn(3, 1, 4, n, d_head, generator=generator)
    position = torch.arange(n)[None]
    return AttentionCall(q, k, v, Visible(rule, position, position), d_head**-0.5)


def crossover(times: dict[int, dict[str, float]]) -> Claim:
    """From which length on linear attention is faster than fused softmax."""
    faster = [n for n in LENGTHS if times[n]["linear"] < times[n]["softmax"]]
    first = min(faster) if faster else None
    everywhere = first == LENGTHS[0]
    return Claim(
        "Linear attention is faster than softmax attention.",
        {"seconds": times, "first_length_where_linear_is_faster": first},
        "holds" if everywhere else "holds with a condition" if first else "does not hold",
        f"From about {first:,} tokens on" + ("." if everywhere else "; below, softmax wins.")
        if first
        else f"Not up to {LENGTHS[-1]:,} tokens on this machine.",
        "interp.attention.fused; 4 heads × 32",
    )


def exponents(times: dict[int, dict[str, float]], generator: torch.Generator) -> Claim:
    """Slopes of log time over the logs of length, head width and window."""
    wide = {d: _timed(dict(RULES), 4096, generator, d) for d in WIDTHS}
    far = _timed({str(w): Window(w) for w in WINDOWS}, 8192, generator)
    found = {
        f"{name}: {size}": slope({x: by[x][name] for x in sizes})
        for size, by, sizes in (("n", times, FITTED), ("d", wide, WIDTHS))
        for name in RULES
    }
    found["window: w"] = slope({w: far[str(w)] for w in WINDOWS})
    wanted = dict(zip(found, (2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0), strict=True))
    off = [name for name in wanted if abs(found[name] - wanted[name]) >= 0.3]
    return Claim(
        "Softmax attention costs O(n²d), a window O(nwd), linear attention O(nd²).",
        {"exponents": found, "expected": wanted, "seconds_by_d": wide, "seconds_by_w": far},
        "holds with a condition" if off else "holds",
        "Fitted exponents: "
        + ", ".join(f"{name} {power:.2f}" for name, power in found.items())
        + (
            f". Off the formula by 0.3 and more at these sizes: {', '.join(off)}. What a call "
            "costs at any size lowers an exponent, a cache that overflows raises it."
            if off
            else "."
        ),
        "interp.attention.fused; n = 2,048 … 8,192, d = 32 … 128, w = 128 … 1,024; 4 heads",
    )


def performer(generator: torch.Generator) -> Claim:
    """KL of exact attention from a Performer's, by the number of features and size of scores."""
    found: dict[str, dict[int, float]] = {}
    for size in (0.5, 1.0, 2.0):
        call = _call(Causal(), 256, generator, size=size)
        exact, row = pattern_of(call), {}
        for m in (16, 64, 256, 1024):
            rule = Performer(features=m)
            seen = Visible(rule, call.visible.q_pos, call.visible.k_pos)
            near = pattern_of(AttentionCall(call.q, call.k, call.v, seen, call.scale))
            ratio = (exact.clamp(min=1e-30) / near.clamp(min=1e-30)).log()
            row[m] = float((exact * ratio).sum(-1).mean())
        found[f"q and k × {size:g}"] = row
    at = found["q and k × 1"][256]
    return Claim(
        "A Performer's attention is 0.3 nats and more from exact attention.",
        {"KL_by_features": found},
        "holds with a condition",
        f"With 256 features and scores of unit variance it is {at:.2f} nats; it falls with the "
        f"number of features and rises steeply with scores ({found['q and k × 2'][256]:.2f} when "
        "q and k are twice as large).",
        "interp.attention.performer, pattern_of",
    )
