"""Claims about which of two ways to compute the same is faster."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from claims.record import Claim, Verdict, peak_added, seconds
from interp.attention import AttentionCall, Causal, Visible, fused, materialised

LENGTHS = (128, 512, 2048, 8192, 16384)


@torch.no_grad()
def measure(generator: torch.Generator) -> Iterator[Claim]:
    """All of them."""
    yield einsum(generator)
    yield merged_projection(generator)
    yield copies(generator)
    yield fast_path(generator)
    yield fused_speed(generator)


def einsum(generator: torch.Generator) -> Claim:
    """Scores by matmul and by einsum, at two sizes."""
    times, slower = {}, {}
    for n in (64, 512):
        q, k = torch.randn(2, 4, 8, n, 64, generator=generator)
        flat_q, flat_k = q.flatten(0, 1), k.flatten(0, 1)
        ways = {
            "bmm": partial(torch.bmm, flat_q, flat_k.mT),
            "einsum": partial(torch.einsum, "bhqd,bhkd->bhqk", q, k),
        }
        times[n] = seconds(ways)
        slower[n] = times[n]["einsum"] / times[n]["bmm"] - 1
    inside = [0.15 < gap < 0.35 for gap in slower.values()]
    return Claim(
        "einsum is 20–28 % slower than bmm.",
        {"seconds": times, "slower": slower},
        "holds" if all(inside) else "holds with a condition" if any(inside) else "does not hold",
        f"einsum took {slower[64]:+.0%} at 64 tokens, where finding the axes counts, and "
        f"{slower[512]:+.0%} at 512: it calls bmm.",
        "torch.bmm, torch.einsum at [4, 8, n, 64]",
    )


def merged_projection(generator: torch.Generator) -> Claim:
    """One product for q, k and v against three."""
    x, weight = (torch.randn(*s, generator=generator) for s in ((8, 256, 512), (1536, 512)))
    parts = [part.contiguous() for part in weight.chunk(3)]
    times = seconds(
        {
            "merged": lambda: F.linear(x, weight).chunk(3, -1),
            "split": lambda: [F.linear(x, part) for part in parts],
        }
    )
    gain = times["split"] / times["merged"] - 1
    return Claim(
        "A merged QKV projection is faster than three.",
        {"seconds": times, "split_over_merged": 1 + gain},
        "holds" if gain > 0.05 else "does not hold",
        f"Three products took {gain:+.0%} on this processor; the difference is launches, which "
        "count where they are dear (GPUs, small batches).",
        "torch.nn.functional.linear, 2,048 tokens, 512 → 1,536",
    )


def copies(generator: torch.Generator) -> Claim:
    """Heads as views of a merged projection, or copied before attention."""
    merged = torch.randn(2, 1024, 3, 8, 64, generator=generator)

    def attend(copy: bool) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in merged.unbind(2))
        if copy:
            q, k, v = (x.contiguous() for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    times = seconds({"views": lambda: attend(False), "copied first": lambda: attend(True)})
    gain = times["copied first"] / times["views"] - 1
    return Claim(
        "Copying heads into contiguous memory before attention costs time for nothing.",
        {"seconds": times, "copied_over_views": 1 + gain},
        "holds" if gain > 0.02 else "does not hold",
        f"With the copy it took {gain:+.0%}.",
        "scaled_dot_product_attention at [2, 8, 1024, 64]",
    )


def fast_path(generator: torch.Generator) -> Claim:
    """nn.MultiheadAttention in inference, with its fast path and without."""
    layer = nn.MultiheadAttention(256, 8, batch_first=True).eval()
    for weight in layer.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator) * 0.05)
    x = torch.randn(4, 256, 256, generator=generator)

    def run(fast: bool) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(fast)
        return layer(x, x, x, need_weights=False)[0]

    times = seconds({"fast path": lambda: run(True), "without": lambda: run(False)})
    torch.backends.mha.set_fastpath_enabled(True)
    gain = times["without"] / times["fast path"] - 1
    return Claim(
        "nn.MultiheadAttention's fast path is 15–20 % faster.",
        {"seconds": times, "gain": gain},
        "holds" if 0.1 < gain < 0.3 else "does not hold",
        f"It gained {gain:+.0%} at 256 tokens, width 256.",
        "torch.nn.MultiheadAttention, torch.backends.mha",
    )


def fused_speed(generator: torch.Generator) -> Claim:
    """Fused against materialised causal attention of one head, in time and memory, by length."""
    times: dict[int, dict[str, float]] = {}
    memory: dict[int, dict[str, float]] = {}
    for n in LENGTHS:
        q, k, v = torch.randn(3, 1, 1, n, 64, generator=generator)
        position = torch.arange(n)[None]
        call = AttentionCall(q, k, v, Visible(Causal(), position, position), 0.125)
        routes = {"fused": partial(fused, call), "materialised": partial(materialised, call)}
        times[n] = seconds(routes, rounds=3)
        memory[n] = {name: peak_added(route) for name, route in routes.items()}
    gains = {n: pair["materialised"] / pair["fused"] for n, pair in times.items()}
    verdict: Verdict = "holds with a condition"
    if all(2 <= gain <= 4 for gain in gains.values()):
        verdict = "holds"
    most = memory[LENGTHS[-1]]
    return Claim(
        "scaled_dot_product_attention is 2–4 times as fast as materialised attention.",
        {"seconds": times, "times_faster": gains, "peak_added_MiB": memory},
        verdict,
        "It depends on the length: "
        + ", ".join(f"{gain:.1f}× at {n:,}" for n, gain in gains.items())
        + f". The causal kernel skips half of the work. At {LENGTHS[-1]:,} tokens it adds "
        f"{most['fused']:.0f} MiB to the peak, the materialised route {most['materialised']:,.0f}.",
        "interp.attention.fused, interp.attention.materialised; 1 head × 64",
    )
