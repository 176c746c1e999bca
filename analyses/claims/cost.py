"""Claims about cost by length, and about how near random features come."""

import math
from collections.abc import Iterator
from functools import partial

import torch

from claims.record import Claim, seconds
from interp.attention import AttentionCall, Causal, Rule, Visible, Window, fused
from interp.attention.kernels import pattern_of
from interp.attention.linear import Linear
from interp.attention.performer import Performer

LENGTHS = (1024, 2048, 4096, 8192)
RULES: dict[str, Rule] = {"softmax": Causal(), "window 128": Window(128), "linear": Linear()}


@torch.no_grad()
def measure(generator: torch.Generator) -> Iterator[Claim]:
    """All of them."""
    times = {
        n: seconds(
            {name: partial(fused, _call(rule, n, generator)) for name, rule in RULES.items()},
            rounds=3,
        )
        for n in LENGTHS
    }
    yield crossover(times)
    yield exponents(times)
    yield performer(generator)


def _call(rule: Rule, n: int, generator: torch.Generator, size: float = 1.0) -> AttentionCall:
    q, k, v = size * torch.randn(3, 1, 4, n, 32, generator=generator)
    position = torch.arange(n)[None]
    return AttentionCall(q, k, v, Visible(rule, position, position), 32**-0.5)


def crossover(times: dict[int, dict[str, float]]) -> Claim:
    """From which length on linear attention is faster than fused softmax."""
    faster = [n for n in LENGTHS if times[n]["linear"] < times[n]["softmax"]]
    first = min(faster) if faster else None
    return Claim(
        "Linear attention is faster than softmax attention.",
        {"seconds": times, "first_length_where_linear_is_faster": first},
        "holds with a condition" if first else "does not hold",
        f"From about {first:,} tokens on; below, the fused kernel wins."
        if first
        else "Not up to 8,192 tokens on this machine.",
        "interp.attention.fused; 4 heads × 32",
    )


def exponents(times: dict[int, dict[str, float]]) -> Claim:
    """Slopes of log time over log length."""
    span = math.log(LENGTHS[-1] / LENGTHS[1])
    slopes = {
        name: math.log(times[LENGTHS[-1]][name] / times[LENGTHS[1]][name]) / span for name in RULES
    }
    wanted = {"softmax": 2.0, "window 128": 1.0, "linear": 1.0}
    off = max(abs(slopes[name] - wanted[name]) for name in wanted)
    return Claim(
        "Softmax attention costs O(n²d), a window O(nwd), linear attention O(nd²).",
        {"exponent_of_n": slopes, "expected": wanted},
        "holds" if off < 0.3 else "holds with a condition",
        "Fitted from 2,048 to 8,192 tokens: "
        + ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
        + "; what a call costs at any length flattens the fit below.",
        "interp.attention.fused; 4 heads × 32",
    )


def performer(generator: torch.Generator) -> Claim:
    """KL of exact attention from a Performer's, by the number of features and size of scores."""
    found: dict[str, dict[int, float]] = {}
    for size in (0.5, 1.0, 2.0):
        call = _call(Causal(), 256, generator, size)
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
