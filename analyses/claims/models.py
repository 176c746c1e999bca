"""Claims about trained models: windows, shared heads, streams, uniform heads, induction."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from claims.record import Claim, seconds
from claims.training import (
    LENGTH,
    TASK,
    Trained,
    accuracy_on,
    fitted,
    loss_on,
    trained,
    under,
)
from interp import Transformer, TransformerConfig, probes, tasks
from interp.attention import AttentionCall, fused
from interp.hooks import Tap
from interp.metrics import next_token_targets
from interp.tasks import Batch


def measure(generator: torch.Generator, *, steps: int) -> Iterator[Claim]:
    """All of them."""
    causal = trained(steps)
    yield windows(causal, steps)
    yield shared_heads(causal, steps)
    yield streams(causal, trained(steps, scored="all"), generator)
    yield uniform(causal, generator)


def windows(causal: Trained, steps: int) -> Claim:
    """Repeated tokens need to look back half a sequence."""
    accuracy = {"causal": causal.accuracy}
    for width in (8, 32):
        found = trained(steps, attention="window", attention_options={"window": width})
        accuracy[f"window {width}"] = found.accuracy
    fails = accuracy["window 8"] < 0.5 * accuracy["window 32"]
    return Claim(
        "A window can't solve a task that needs to look further back.",
        {"accuracy": accuracy, "looks_back": LENGTH // 2},
        "holds with a condition" if fails else "does not hold",
        "The reach is layers · (w − 1), not w: what decides is whether the layers together span "
        "the distance, and whether a single head must.",
        "interp.attention.routes.window, interp.tasks repeated_tokens",
    )


def shared_heads(causal: Trained, steps: int) -> Claim:
    """Multi-head, grouped and multi-query models of the same sizes, trained alike."""
    found: dict[str, dict[str, float]] = {}
    for name, n in (("multi-head", 4), ("grouped", 2), ("multi-query", 1)):
        run = causal if n == 4 else trained(steps, n_kv_heads=n)
        found[name] = {
            "accuracy": run.accuracy,
            "loss": run.loss,
            "cache_bytes_a_token": _cache_bytes(run.model),
            "seconds_to_generate": _generation(run),
        }
    gap = found["multi-query"]["loss"] - found["multi-head"]["loss"]
    slower = (
        found["multi-head"]["seconds_to_generate"] / found["multi-query"]["seconds_to_generate"]
    )
    return Claim(
        "Grouped- and multi-query attention save cache and time at little cost in quality.",
        found,
        "holds with a condition",
        f"The cache is 2 and 4 times smaller; multi-query's loss is {gap:+.3f} nats at equal "
        f"steps. Generation with multi-head takes {slower:.2f} times as long at this size: reading "
        "the cache is not what takes time.",
        "interp.Transformer(n_kv_heads=…), model.generate",
    )


def _cache_bytes(model: Transformer) -> float:
    """What a KV cache holds a token, as the layers read it."""
    held: list[int] = []

    def watch(call: AttentionCall, tap: Tap) -> Tensor:
        held.append(sum(x.numel() * x.element_size() for x in (call.k, call.v)))
        return fused(call)

    tokens = torch.zeros(1, LENGTH, dtype=torch.long)
    model(tokens, kv_cache=model.new_kv_cache(), kernel=watch)
    return sum(held) / LENGTH


def _generation(run: Trained) -> float:
    prompt = torch.zeros(1, 4, dtype=torch.long)
    return seconds({"it": lambda: run.model.generate(prompt, 40)}, rounds=3)["it"]


STREAMS: dict[str, dict[str, Any]] = {
    "whole past": {"kind": "causal"},
    "window 28": {"kind": "window", "window": 28},
    "4 sinks + window 24": {"kind": "streaming", "window": 24, "sinks": 4},
    "the same, positions of the cache": {
        "kind": "streaming",
        "window": 24,
        "sinks": 4,
        "positions": "cache",
    },
}


@torch.no_grad()
def streams(causal: Trained, everywhere: Trained, generator: torch.Generator) -> Claim:
    """Models trained on their whole past, run with a window and with sinks beside it.

    On tokens that never repeat an induction head has nothing to do. Asked for every token, it must
    learn to keep still then; asked at repeats only, it need not.
    """
    fresh = _never_repeating(64, generator)
    found: dict[str, dict[str, float]] = {}
    for name, run in (("asked for every token", everywhere), ("asked at repeats only", causal)):
        sink = float(probes.head_statistics(run.model, fresh.tokens).sink.max())
        found[name] = {"largest weight on the first token": sink}
        for label, rule in STREAMS.items():
            found[name][label] = float(loss_on(under(run.model, **rule), fresh))
    parts = [_stream_in_words(name, row) for name, row in found.items()]
    first, second = found.values()
    parked = first["largest weight on the first token"] > 0.3
    breaks = first["window 28"] > first["whole past"] + 0.05
    mends = first["4 sinks + window 24"] < first["window 28"] - 0.05
    return Claim(
        "A window breaks a model; a few sinks beside it mend that (StreamingLLM).",
        {"loss_beyond_the_window": found},
        "holds with a condition" if parked and breaks and mends else "does not hold",
        "It is a matter of heads that park on the first token. On tokens that never repeat, beyond "
        f"the window: {'; '.join(parts)} (a guess costs {math.log(TASK['vocab']):.2f}).",
        "interp.attention.streaming, window; interp.tasks repeated_tokens",
    )


def _stream_in_words(name: str, row: dict[str, float]) -> str:
    whole, window, sinks, cache = (row[label] for label in STREAMS)
    return (
        f"the model {name} puts up to {row['largest weight on the first token']:.2f} there and has "
        f"{whole:.2f} nats with its whole past, {window:.2f} with a window of 28, {sinks:.2f} with "
        f"4 sinks and 24, {cache:.2f} with positions of the cache"
    )


def _never_repeating(n: int, generator: torch.Generator) -> Batch:
    """BOS and distinct tokens, as many as there are; scored where a window of 28 has lost BOS."""
    vocab = TASK["vocab"]
    rows = [torch.randperm(vocab, generator=generator) for _ in range(n)]
    tokens = torch.cat([torch.full((n, 1), vocab), torch.stack(rows)], 1)
    targets = next_token_targets(tokens)
    far = torch.arange(tokens.shape[1]) >= 28
    real = torch.ones_like(tokens, dtype=torch.bool)
    return Batch(tokens, real, targets.masked_fill(~far, -100))


def uniform(causal: Trained, generator: torch.Generator) -> Claim:
    """Normalised entropy of all heads, before training and after."""
    tokens = tasks.make("repeated_tokens", **TASK).batch(32, generator, split="held_out").tokens
    runs = {"untrained": trained(0), "trained": causal}
    found = {
        name: probes.head_statistics(run.model, tokens).normalized_entropy
        for name, run in runs.items()
    }
    near = {name: int((h >= 0.9).sum()) for name, h in found.items()}
    return Claim(
        "Many heads are near-uniform, so they do little.",
        {"normalized_entropy": {n: h.tolist() for n, h in found.items()}, "near_uniform": near},
        "does not hold",
        f"{near['untrained']} of 8 heads are near-uniform before training and {near['trained']} "
        "after: it tells how little was learned. And uniform is not useless: see head_entropy.py, "
        "where a head with normalised entropy 0.9999 is all that the model has.",
        "interp.probes.head_statistics",
    )


def induction(steps: int) -> Claim:
    """Induction takes two layers; modular addition groks in one."""
    causal, one = trained(steps), trained(steps, n_layers=1)
    grokked = grokking(most=15 * steps)
    found = {
        "two layers": {"accuracy": causal.accuracy, "best_induction": causal.best_induction},
        "one layer": {"accuracy": one.accuracy, "best_induction": one.best_induction},
        "modular addition, one layer": grokked,
    }
    late = grokked["step when held-out sums are known"] / grokked["step when its own are known"]
    apart = one.accuracy < 0.2 and late >= 2
    return Claim(
        "Induction heads are what grokking is.",
        found,
        "does not hold" if apart else "holds with a condition",
        f"One layer forms no induction head on repeats (accuracy {one.accuracy:.2f}, two layers "
        f"{causal.accuracy:.2f}), but it groks addition modulo 53: all of its own sums by step "
        f"{grokked['step when its own are known']:.0f}, with "
        f"{grokked['held-out accuracy then']:.0%} of the held-out ones, and 95 % of those by step "
        f"{grokked['step when held-out sums are known']:.0f}."
        if apart
        else "Neither was seen in so many steps: see the numbers.",
        "interp.tasks repeated_tokens and modular_addition, interp.probes.head_statistics",
    )


def grokking(*, most: int) -> dict[str, float]:
    """When one layer knows its own sums and when the held-out ones; NaN: not in so many steps.

    The setting of Nanda et al. 2023, made small: no norms, ReLU, weight decay 1.
    """
    task = tasks.make("modular_addition", p=53, fraction=0.4)
    config = TransformerConfig(
        n_layers=1,
        n_heads=4,
        d_model=64,
        d_mlp=256,
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        normalization="none",
        activation="relu",
    )
    held_out = task.batch(512, torch.Generator().manual_seed(1), split="held_out")
    own = task.batch(512, torch.Generator().manual_seed(2))
    known, then, general = math.nan, math.nan, math.nan

    def enough(step: int, model: Transformer) -> bool:
        nonlocal known, then, general
        if step % 50:
            return False
        if math.isnan(known) and accuracy_on(model, own) >= 0.99:
            known, then = step, accuracy_on(model, held_out)
        general = step if accuracy_on(model, held_out) >= 0.95 else math.nan
        return not math.isnan(general)

    how: dict[str, Any] = {"batch_size": 512, "weight_decay": 1.0, "betas": (0.9, 0.98)}
    fitted(config, task.batch, steps=most, enough=enough, **how)
    return {
        "step when its own are known": known,
        "held-out accuracy then": then,
        "step when held-out sums are known": general,
    }
