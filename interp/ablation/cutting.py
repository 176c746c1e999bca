"""Cut heads, one set at a time or each in turn."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation.heads import (
    all_heads,
    check_site,
    checked_heads,
    checked_kv_heads,
    checked_layers,
    head_count,
)
from interp.ablation.kinds import Head, Request, cut_of
from interp.ablation.outcomes import HeadSweep, LayerSweep, swept
from interp.attention import KVCache
from interp.hooks import Hooks
from interp.metrics import Metric
from interp.sweeps import Plan, Progress, Site, examples_of, metric_name, run, run_once
from interp.sweeps.subject import whole_pairs


def ablate(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    *,
    heads: Iterable[tuple[int, int]] = (),
    kind: str = "zero",
    site: Site = "z",
    kv_heads: Iterable[tuple[int, int]] = (),
    layers: Iterable[int] = (),
    reference: Any = None,
    positions: Sequence[int] | None = None,
    mask: Bool[Tensor, "batch pos"] | None = None,
    kv_cache: KVCache | None = None,
    hooks: Hooks = (),
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits with some heads cut at z, before W_O, all at once.

    Args:
        model: Ours, or a wrapped one.
        tokens: Token ids.
        heads: Pairs (layer, query head).
        kind: What a cut head gives, one of `ABLATIONS`.
        site: Cut this instead of z.
        kv_heads: Pairs (layer, key/value head), for the sites "k" and "v" of a model that shares
            them.
        layers: Layers, for sites without heads.
        reference: Tokens or a Batch that means and other examples come from; for "mean" also what
            `reference_mean` gave.
        positions: Absolute positions that are cut: a token's index among the real ones, those of
            earlier chunks in `kv_cache` included. None: all.
        mask: True where a token is real.
        kv_cache: Appended to.
        hooks: Run before the cut.
        generator: For "resample".

    Raises:
        ValueError: Nothing is named, something is not in this model, or the options don't go
            together.
    """
    check_site(model, site)
    chosen = _chosen(model, site, heads, kv_heads, layers)
    examples = examples_of(tokens, mask, needs_targets=False)
    past = 0 if kv_cache is None else kv_cache.length
    cut_at = _positions(positions, examples.tokens.shape[1] if kv_cache is None else None)
    request = Request(model, examples, site, reference, cut_at, past, generator)
    cut = cut_of(kind, request)
    return run_once(
        model, examples, cut.together(chosen), needs=cut.needs, kv_cache=kv_cache, hooks=hooks
    )


def sweep(
    model: Any,
    tokens: Any,
    *,
    kind: str = "zero",
    site: Site = "z",
    reference: Any = None,
    metric: str | Metric = "loss",
    heads: Iterable[tuple[int, int]] | None = None,
    positions: Sequence[int] | None = None,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    generator: torch.Generator | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> HeadSweep | LayerSweep:
    """What cutting each head alone changes: [L H] (sites without heads: [L]).

    All are run in few, short runs: each starts where the first cut head writes. A wrapped model
    can't start inside, and neither can a run under `hooks`: those run from the tokens, in batches.

    Args:
        model: Ours, or a wrapped one; it is run in evaluation mode and left as it was.
        tokens: Tokens (asked for the next token), or a Batch.
        kind: What a cut head gives, one of `ABLATIONS`.
        site: Cut this instead of z.
        reference: See `ablate`.
        metric: A name of `METRICS`, "kl", or a function metric(logits, batch) -> [B].
        heads: Only these, at least one; the others are NaN.
        positions: See `ablate`.
        mask: True where a token is real, beside tokens.
        hooks: What everything runs under, the clean run too.
        generator: For "resample".
        memory: Bytes that the activations of one batch of runs may take.
        progress: Called with (done, total); may raise to cancel.

    Returns:
        `.effect`, ablated minus clean; `.clean`; `.per_example`; `.interval()`; `.p_values()`.
    """
    check_site(model, site)
    every = all_heads(model, site)
    chosen = every if heads is None else checked_heads(model, heads, site=site)
    if not chosen:
        raise ValueError("a sweep cuts at least one head: heads=[(layer, head), …]")
    examples = examples_of(tokens, mask)
    cut_at = _positions(positions, examples.tokens.shape[1])
    request = Request(model, examples, site, reference, cut_at, generator=generator)
    cut = cut_of(kind, request)
    plan = Plan(metric, memory, hooks, progress, cut.needs)
    outcome = run(model, examples, [cut.together([head]) for head in chosen], plan)
    shape = _grid(model, site)
    effects = outcome.clean.new_full((len(every), len(examples)), torch.nan)
    effects[[every.index(head) for head in chosen]] = outcome.effects
    about = {"kind": kind, "site": site, "metric": metric_name(metric)}
    fields = swept(effects.view(*shape, -1), outcome.clean, examples.weights, **about)
    return HeadSweep(**fields) if len(shape) == 2 else LayerSweep(**fields)


def _chosen(
    model: Any,
    site: Site,
    heads: Iterable[tuple[int, int]],
    kv_heads: Iterable[tuple[int, int]],
    layers: Iterable[int],
) -> list[Head]:
    heads, kv_heads = whole_pairs(heads), whole_pairs(kv_heads, name="kv_heads")
    if not isinstance(layers, Iterable):
        raise TypeError(f"layers are a list of whole numbers, got {layers!r}")
    layers = list(layers)
    chosen: list[Head] = []
    if heads:
        chosen += checked_heads(model, heads, site=site)
    if kv_heads:
        chosen += checked_kv_heads(model, kv_heads, site=site)
    if layers:
        chosen += checked_layers(model, layers, site=site)
    if not chosen:
        raise ValueError(
            "nothing is named to be cut: heads=[(layer, head), …], or, at other sites, "
            "kv_heads=[(layer, kv_head), …] or layers=[layer, …]"
        )
    return chosen


def _positions(positions: Sequence[int] | None, end: int | None) -> tuple[int, ...] | None:
    if positions is None:
        return None
    listed = positions.tolist() if isinstance(positions, Tensor) else positions
    if not isinstance(listed, Iterable) or not all(isinstance(p, int) for p in listed):
        raise TypeError(f"positions are a list of whole numbers, got {positions!r}")
    chosen = tuple(int(p) for p in listed)
    if any(p < 0 for p in chosen):
        raise ValueError(f"positions are absolute, 0 is the first token; got {list(chosen)}")
    if end is not None and any(p >= end for p in chosen):
        raise ValueError(f"positions end at {end - 1} here, got {list(chosen)}")
    return chosen


def _grid(model: Any, site: Site) -> tuple[int, ...]:
    n = head_count(model, site)
    return (model.config.n_layers,) if n is None else (model.config.n_layers, n)
