"""Forward, training step and `run_with_cache`: what our hook points cost over bare PyTorch.

All run the same weights on the same tokens and are interleaved; the caches are those that one
gets without asking for anything, and are held against the bare forward pass.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import Action, interleave

SIZES = (
    peers.Size(n_layers=2, n_heads=4, d_model=64, d_vocab=64, n_ctx=64, batch=64),
    peers.Size(n_layers=4, n_heads=8, d_model=256, d_vocab=1000, n_ctx=512, batch=2),
    peers.Size(n_layers=2, n_heads=8, d_model=256, d_vocab=512, n_ctx=2048, batch=1),
)
QUICK = (peers.Size(n_layers=1, n_heads=2, d_model=16, d_vocab=11, n_ctx=8, batch=2),)
LIMITS = {"forward": 1.05, "step": 1.08, "cache": 1.25}  # ours over bare


def measure(*, quick: bool = False, **how: Any) -> Iterator[Measurement]:
    """Each of forward, step and cache at each size."""
    sizes = QUICK if quick else SIZES
    budget = {"rounds": 3, "warmup": 1, "shortest": 0.0} if quick else {"rounds": 21}
    for size in sizes:
        for kind in LIMITS:
            yield _compare(kind, size, budget=budget | how)


def _compare(kind: str, size: peers.Size, *, budget: dict[str, Any]) -> Measurement:
    generator = torch.Generator().manual_seed(0)
    bare, tokens = peers.Bare(size, generator), size.tokens(generator)
    models = {"ours": peers.ours(bare), "TransformerLens": peers.transformer_lens(bare)}
    peers.assert_same_logits(bare, models, tokens=tokens)
    make = ACTIONS[kind]
    timing = interleave(
        {name: make(model, tokens) for name, model in {"bare": bare, **models}.items()}, **budget
    )
    ratio = timing.ratio("ours", "bare")
    check = Check(f"{kind}, {size}, ours over bare", ratio, at_most=LIMITS[kind])
    name = f"{kind} · {size}"
    return timed(name, timing, baseline="bare", settings=asdict(size), checks=[check])


def forward(model: nn.Module, tokens: Tensor) -> Action:
    """Logits without gradients."""

    @torch.no_grad()
    def run() -> Tensor:
        return model(tokens)

    return run


def step(model: nn.Module, tokens: Tensor) -> Action:
    """Forward, next-token cross-entropy, backward and a fused AdamW step, on a copy."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def run() -> None:
        logits = model(tokens)[:, :-1]
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def cache(model: nn.Module, tokens: Tensor) -> Action:
    """`run_with_cache` as it comes; the bare model, which has none, runs forward."""
    if isinstance(model, peers.Bare):
        return forward(model, tokens)

    @torch.no_grad()
    def run() -> object:
        return model.run_with_cache(tokens)

    return run


ACTIONS: dict[str, Callable[[nn.Module, Tensor], Action]] = {
    "forward": forward,
    "step": step,
    "cache": cache,
}
