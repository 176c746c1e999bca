"""Claims about numbers: scaling, memory, precision, masks."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from claims.record import Claim
from interp.attention import AttentionCall, Full, Visible, attention, fused, materialised


def measure(generator: torch.Generator) -> Iterator[Claim]:
    """All of them."""
    yield scaling(generator)
    yield memory(generator)
    yield precision(generator)
    yield masks(generator)


def scaling(generator: torch.Generator) -> Claim:
    """The variance of q·k, and how much of a softmax's gradient is left, by d_k."""
    raw, scaled, gradient = {}, {}, {}
    for d in (4, 16, 64, 256, 1024):
        q, k = torch.randn(2, 512, d, generator=generator)
        scores = q @ k.T
        raw[d], scaled[d] = float(scores.var()), float((scores / d**0.5).var())
        gradient[d] = {"raw": _jacobian(scores), "scaled": _jacobian(scores / d**0.5)}
    per_d = [raw[d] / d for d in raw]
    holds = max(abs(x - 1) for x in [*per_d, *scaled.values()]) < 0.1
    return Claim(
        "The variance of q·k grows as d_k, and dividing by √d_k brings it to 1; without that the "
        "softmax saturates and its gradient vanishes.",
        {"variance": raw, "variance_scaled": scaled, "softmax_gradient": gradient},
        "holds" if holds else "does not hold",
        "For independent unit-variance entries, and at initialisation only: at d_k = 1,024 the "
        f"unscaled softmax's gradient is {gradient[1024]['raw'] / gradient[4]['raw']:.2f} of that "
        f"at 4, the scaled one's {gradient[1024]['scaled'] / gradient[4]['scaled']:.2f}.",
        "torch: q @ k.T, softmax",
    )


def _jacobian(scores: Tensor) -> float:
    """Mean over rows of Σ_j p_j (1 − p_j): the trace of the softmax's Jacobian."""
    p = scores.softmax(-1)
    return float((p * (1 - p)).sum(-1).mean())


def memory(generator: torch.Generator) -> Claim:
    """The size of the pattern, and what the two routes add to this process's peak."""
    n, peaks = 8192, {}
    q, k, v = torch.randn(3, 1, 1, n, 32, generator=generator)
    position = torch.arange(n)[None]
    call = AttentionCall(q, k, v, Visible(Full(), position, position), 32**-0.5)
    for name, route in (("fused", fused), ("materialised", materialised)):
        before = _peak_bytes()
        route(call)
        peaks[name] = (_peak_bytes() - before) / 2**20
    sizes = {m: m * m * 4 / 2**20 for m in (512, n)}
    holds = sizes == {512: 1.0, n: 256.0} and peaks["fused"] < 32 < 256 <= peaks["materialised"]
    return Claim(
        "The n×n float32 matrix of one head takes 1 MB at 512 tokens and 256 MB at 8,192, and a "
        "fused kernel takes neither.",
        {"MiB": sizes, "peak_added_MiB_at_8192": peaks},
        "holds" if holds else "holds with a condition",
        f"Fused added {peaks['fused']:.0f} MiB to the peak, materialised "
        f"{peaks['materialised']:.0f}: scores and pattern are both held, more than once.",
        "interp.attention.fused, interp.attention.materialised",
    )


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def precision(generator: torch.Generator) -> Claim:
    """Fused against float64, in half precisions, for usual and for large scores."""
    found: dict[str, dict[str, float]] = {}
    for size in (1.0, 4.0, 16.0):
        q, k, v = torch.randn(3, 1, 4, 256, 64, generator=generator, dtype=torch.float64)
        exact, row = attention(size * q, k, v), {}
        for dtype in (torch.float16, torch.bfloat16):
            narrow = [x.to(dtype) for x in (size * q, k, v)]
            rounded = attention(*(x.double() for x in narrow))
            got = attention(*narrow).double()
            row[f"{dtype}: of inputs and kernel".replace("torch.", "")] = _most(got - exact)
            row[f"{dtype}: of the kernel alone".replace("torch.", "")] = _most(got - rounded)
        found[f"scores × {size:g}"] = row
    usual = found["scores × 1"]
    return Claim(
        "Fused and materialised attention differ by about 1e-3 in half precision.",
        {"largest_difference": found},
        "holds with a condition",
        "That is float16 at usual scores "
        f"({usual['float16: of inputs and kernel']:.0e}); bfloat16 has 8 bits and errs by "
        f"{usual['bfloat16: of inputs and kernel']:.0e}, and rounding q and k, not the kernel, "
        "makes large scores err by far more "
        f"({found['scores × 16']['bfloat16: of inputs and kernel']:.0e}).",
        "interp.attention.attention (scaled_dot_product_attention)",
    )


def _most(x: Tensor) -> float:
    return float(x.abs().max())


def masks(generator: torch.Generator) -> Claim:
    """A row that may see nothing, under three ways to mask."""
    q, k, v = torch.randn(3, 1, 1, 4, 8, generator=generator)
    seen = torch.ones(4, 4).tril().bool()
    seen[0] = False
    scores = q @ k.mT
    by_hand = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    large = scores.masked_fill(~seen, -1e9).softmax(-1)
    ours = attention(q, k, v, mask=seen, causal=False)
    found = {
        "−inf by hand, row that sees nothing": str(by_hand[0, 0, 0].tolist()),
        "−1e9 by hand, the same row": [round(x, 3) for x in large[0, 0, 0].tolist()],
        "ours, output of that row": ours[0, 0, 0].tolist(),
        "−inf by hand, rows that see something, are finite": bool(
            by_hand[0, 0, 1:].isfinite().all()
        ),
    }
    return Claim(
        "Masking with −inf gives NaN; −1e9 does not.",
        found,
        "holds with a condition",
        "−inf gives NaN only in a row that may see nothing. There −1e9 is no better: it attends "
        "to all keys alike, masked ones and the future too. Ours gives zeros.",
        "torch softmax by hand; interp.attention.attention",
    )
