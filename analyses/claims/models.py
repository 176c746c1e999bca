"""Claims about trained models: windows, shared heads, streams, uniform heads, induction."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from claims.record import Claim, seconds
from claims.training import LENGTH, TASK, Trained, trained
from interp import probes, tasks
from interp.attention import AttentionCall, Kernel, Rule, Streaming, Window, fused
from interp.hooks import Tap


def measure(generator: torch.Generator, *, steps: int) -> Iterator[Claim]:
    """All of them."""
    causal = trained(steps)
    yield windows(causal, steps)
    yield shared_heads(causal, steps)
    yield streams(causal, generator)
    yield uniform(causal, generator)
    yield induction(causal, steps)


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
    """Quality at equal training, bytes of cache and time a step of generation."""
    found: dict[str, dict[str, float]] = {}
    for name, n in (("multi-head", 4), ("grouped", 2), ("multi-query", 1)):
        run = causal if n == 4 else trained(steps, n_kv_heads=n)
        found[name] = {
            "accuracy": run.accuracy,
            "loss": run.loss,
            "cache_bytes_a_token": 2 * n * 16 * 4 * 2,
            "seconds_to_generate": _generation(run),
        }
    gap = found["multi-query"]["loss"] - found["multi-head"]["loss"]
    return Claim(
        "Grouped- and multi-query attention save cache and time at little cost in quality.",
        found,
        "holds with a condition",
        f"The cache is 2 and 4 times smaller; multi-query's loss is {gap:+.3f} nats at equal "
        "steps. At this size generation is no faster: reading the cache is not what takes time.",
        "interp.Transformer(n_kv_heads=…), model.generate",
    )


def _generation(run: Trained) -> float:
    prompt = torch.zeros(1, 4, dtype=torch.long)
    return seconds({"it": lambda: run.model.generate(prompt, 40)}, rounds=3)["it"]


def streams(causal: Trained, generator: torch.Generator) -> Claim:
    """A model trained on its whole past, run with a window and with sinks beside it."""
    batch = tasks.make("repeated_tokens", **TASK).batch(64, generator, split="held_out")
    sink = float(probes.head_statistics(causal.model, batch.tokens).sink.max())
    loss: dict[str, float] = {}
    rules: dict[str, Rule | None] = {
        "whole past": None,
        "window 28": Window(28),
        "4 sinks + window 24": Streaming(24, sinks=4),
        "window 12": Window(12),
        "4 sinks + window 8": Streaming(8, sinks=4),
    }
    for name, rule in rules.items():
        how: dict[str, Any] = {} if rule is None else {"kernel": _under(rule)}
        loss[name] = float(causal.loss_of(batch, **how))
    helps = loss["4 sinks + window 24"] < loss["window 28"] - 0.05
    return Claim(
        "A window breaks a model; a few sinks beside it mend that (StreamingLLM).",
        {"largest_weight_on_the_first_token": sink, "loss": loss},
        "holds with a condition" if helps else "does not hold",
        "It is true of models that park attention on the first tokens. This one's largest mean "
        f"weight there is {sink:.2f}, and sinks in place of four more tokens of window change "
        f"its loss by {loss['4 sinks + window 24'] - loss['window 28']:+.3f} nats.",
        "Transformer(kernel=…) under interp.attention.Streaming and Window",
    )


def _under(rule: Rule) -> Kernel:
    """Fused attention under another mask than the model was trained with."""
    from dataclasses import replace

    def kernel(call: AttentionCall, tap: Tap) -> Tensor:
        return fused(replace(call, visible=replace(call.visible, rule=rule)))

    return kernel


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


def induction(causal: Trained, steps: int) -> Claim:
    """Induction takes two layers; modular addition groks in one."""
    one = trained(steps, n_layers=1)
    found = {
        "two layers": {"accuracy": causal.accuracy, "best_induction": causal.best_induction},
        "one layer": {"accuracy": one.accuracy, "best_induction": one.best_induction},
    }
    return Claim(
        "Induction heads are what grokking is.",
        found,
        "does not hold",
        "One layer forms no induction head with any amount of training on repeats, and modular "
        "addition groks in one layer (Nanda et al. 2023): the one can happen without the other.",
        "interp.tasks repeated_tokens, interp.probes.induction_scores",
    )
