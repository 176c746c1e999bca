"""Claims about numbers: scaling, memory, precision, masks."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from claims.record import Claim, peak_added
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
        peaks[name] = peak_added(partial(route, call))
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


def precision(generator: torch.Generator) -> Claim:
    """Fused against materialised in half precision, and both against float64."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for size in (1.0, 4.0, 16.0):
        q, k, v = torch.randn(3, 1, 4, 256, 64, generator=generator, dtype=torch.float64)
        found[f"scores × {size:g}"] = {
            str(dtype).removeprefix("torch."): _errors(size * q, k, v, dtype)
            for dtype in (torch.float16, torch.bfloat16)
        }
    usual, wide = found["scores × 1"], found["scores × 16"]["bfloat16"]
    apart = {name: row["fused − materialised"] for name, row in usual.items()}
    return Claim(
        "Fused and materialised attention differ by about 1e-3 in half precision.",
        {"largest_difference": found},
        "holds with a condition",
        f"In float16 by {apart['float16']:.0e}, in bfloat16, with three bits less, by "
        f"{apart['bfloat16']:.0e}, and by {wide['fused − materialised']:.0e} where scores are 16 "
        "times as large. By hand, scores are rounded before the softmax: "
        f"{wide['materialised alone']:.0e} from float64 on the same inputs, where the fused "
        f"kernel, with float32 inside, is {wide['kernel alone']:.0e} off. Rounding q and k to "
        f"begin with costs it more, {wide['inputs and kernel']:.0e} in all.",
        "interp.attention.attention (scaled_dot_product_attention); by hand in half precision",
    )


def _errors(q: Tensor, k: Tensor, v: Tensor, dtype: torch.dtype) -> dict[str, float]:
    exact = attention(q, k, v)
    narrow = [x.to(dtype) for x in (q, k, v)]
    fused_z, rounded = attention(*narrow).double(), attention(*(x.double() for x in narrow))
    a, b, c = narrow
    scores = (a @ b.mT) * a.shape[-1] ** -0.5
    n = q.shape[2]
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    by_hand = (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ c).double()
    return {
        "fused − materialised": _most(fused_z - by_hand),
        "inputs and kernel": _most(fused_z - exact),
        "kernel alone": _most(fused_z - rounded),
        "materialised alone": _most(by_hand - rounded),
    }


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
        "−1e9 in float16": _said(lambda: scores.half().masked_fill(~seen, -1e9)),
    }
    return Claim(
        "Masking with −inf gives NaN; −1e9 does not.",
        found,
        "holds with a condition",
        "−inf gives NaN only in a row that may see nothing. There −1e9 is no better: it attends "
        "to all keys alike, masked ones and the future too; and float16 has no −1e9. Ours gives "
        "zeros.",
        "torch softmax by hand; interp.attention.attention",
    )


def _said(action: Callable[[], object]) -> str:
    try:
        action()
    except RuntimeError as error:
        return str(error)
    return "no error"
