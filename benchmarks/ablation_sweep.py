"""Mean-ablate every head: our sweep against a forward pass for each head.

A sweep that resumes where the head writes needs less than L·H forward passes; that is what it
is held to. Beside it, the loop that everyone writes (a hook on z, one pass a head), over our
model and over TransformerLens's, with the same weights, reference batch and loss.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import interleave
from interp import ablation


@dataclass(frozen=True)
class Goal:
    """A size, and the limits that the sweep should keep there."""

    size: peers.Size
    share: float  # of L·H bare forward passes with their loss, at most
    speedup: float  # over the loop through TransformerLens, at least
    rounds: int = 7  # that count


GOALS = (
    Goal(peers.Size(2, 4, 64, 64, 64, 64), share=0.90, speedup=2.0),
    Goal(peers.Size(4, 8, 256, 512, 512, 2), share=0.66, speedup=2.7),
    Goal(peers.Size(8, 8, 256, 512, 256, 8), share=0.62, speedup=2.3, rounds=3),
)
QUICK = (Goal(peers.Size(2, 2, 16, 11, 8, 2), share=0.9, speedup=2.0, rounds=3),)


def measure(*, quick: bool = False, only: str = "", **how: Any) -> Iterator[Measurement]:
    """The sweep, the loops and one bare pass, at each size, or at those that `only` is part of."""
    goals = [goal for goal in (QUICK if quick else GOALS) if only in _name(goal.size)]
    if not goals:
        raise ValueError(f"no size {only!r}; there are {', '.join(_name(g.size) for g in GOALS)}")
    for goal in goals:
        # every way has run once by then, to compare effects
        warmup = {"warmup": 0, "shortest": 0.0} if goal.rounds < 7 else {"warmup": 1}
        yield _compare(goal, budget={"rounds": goal.rounds} | warmup | how)


def _name(size: peers.Size) -> str:
    return f"mean ablation of {size.n_layers * size.n_heads} heads · {size}"


def _compare(goal: Goal, *, budget: dict[str, Any]) -> Measurement:
    size, generator = goal.size, torch.Generator().manual_seed(0)
    bare = peers.Bare(size, generator)
    tokens, reference = size.tokens(generator), size.tokens(generator)
    model, bridge = peers.ours(bare), peers.transformer_lens(bare)
    peers.assert_same_logits(bare, {"ours": model, "TransformerLens": bridge}, tokens=tokens)

    def sweep() -> Tensor:
        return ablation.sweep(model, tokens, kind="mean", reference=reference).effect

    actions: dict[str, Callable[[], Tensor]] = {
        "bare forward and loss": lambda: clean_loss(bare, tokens),
        "ours: sweep": sweep,
        "ours: loop": lambda: loop(model, tokens, reference=reference),
        "TransformerLens: loop": lambda: loop(bridge, tokens, reference=reference),
    }
    _assert_same_effects(actions)
    timing = interleave(actions, **budget)
    checks = _checks(goal, lambda over: timing.ratio(over, "ours: sweep"))
    baseline = "bare forward and loss"
    return timed(_name(size), timing, baseline=baseline, settings=asdict(size), checks=checks)


def _checks(goal: Goal, over_sweep: Callable[[str], float]) -> list[Check]:
    size = goal.size
    share = 1 / (over_sweep("bare forward and loss") * size.n_layers * size.n_heads)
    speedup = over_sweep("TransformerLens: loop")
    return [
        Check(f"{size}, sweep over L·H bare passes", share, at_most=goal.share),
        Check(f"{size}, TransformerLens over ours", speedup, at_least=goal.speedup),
    ]


@torch.no_grad()
def clean_loss(model: nn.Module, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch"]:
    """Mean next-token loss of each example."""
    return _loss(model(tokens), tokens)


def _loss(logits: Tensor, tokens: Tensor) -> Float[Tensor, "batch"]:
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none").mean(-1)


@torch.no_grad()
def loop(
    model: nn.Module, tokens: Int[Tensor, "batch pos"], *, reference: Int[Tensor, "batch pos"]
) -> Float[Tensor, "layer head"]:
    """Ablated minus clean loss, one whole forward pass a head."""
    config = model.cfg
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(config.n_layers)]
    _, cache = model.run_with_cache(reference, names_filter=names)
    clean = clean_loss(model, tokens)
    effects = torch.empty(config.n_layers, config.n_heads)
    for layer, name in enumerate(names):
        means = cache[name].mean(0)
        for head in range(config.n_heads):
            hook = (name, _set_head(head, means[:, head]))
            logits = model.run_with_hooks(tokens, fwd_hooks=[hook])
            effects[layer, head] = (_loss(logits, tokens) - clean).mean()
    return effects


def _set_head(head: int, value: Float[Tensor, "pos d_head"]) -> Callable[..., Tensor]:
    def replace(z: Float[Tensor, "batch pos head d_head"], hook: object) -> Tensor:
        z[:, :, head] = value
        return z

    return replace


def _assert_same_effects(actions: dict[str, Callable[[], Tensor]]) -> None:
    """All ways must find the same effects, to float32 rounding across batch shapes."""
    wanted = actions["ours: loop"]()
    for name in ("ours: sweep", "TransformerLens: loop"):
        torch.testing.assert_close(actions[name](), wanted, rtol=0, atol=1e-4)
