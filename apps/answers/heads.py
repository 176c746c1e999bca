"""What each head attends to: statistics, verdicts, patterns."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from apps.answers.instead import ZERO, Instead, refusals
from apps.prompts import Prompt, sample, samples
from apps.sources import Opened, UnreadableError
from interp import ablation, circuits, probes
from interp.attention.features import Featured
from interp.metrics import UNSCORED
from interp.plots.arrays import as_floats
from interp.plots.pooling import max_pool, pool_factor
from interp.plots.sprite import TILE_CELLS
from interp.sweeps import Progress
from interp.tasks import Batch

What = Literal["probability", "scores", "value-weighted"]
KEYS = "(keys)"


@dataclass(frozen=True)
class Metric:
    """A number that every head has.

    Attributes:
        label: On the switch.
        name: In words, for the colour bar.
        kind: Of scale (see `interp.plots.scales`).
        formula: How it is made; `KEYS` stands for how many keys a row sees at least.
        python: The expression that computes it from `model` and `batch`.
    """

    label: str
    name: str
    kind: Any
    formula: str
    python: str


def _statistic(label: str, name: str, kind: str, formula: str, field: str) -> Metric:
    least = ", min_keys=probes.least_keys(batch.mask)" * (KEYS in formula)
    asked = f"probes.head_statistics(model, batch.tokens, mask=batch.mask{least})"
    return Metric(label, name, kind, formula, f"{asked}.{field}")


METRICS: dict[str, Metric] = {
    "induction": _statistic(
        "induction", "induction score", "score",
        "attention to the tokens after earlier occurrences of this one, over rows that have one",
        "induction",
    ),
    "previous_token": _statistic(
        "previous token", "previous-token score", "score",
        "attention to the token before", "previous_token",
    ),
    "duplicate_token": _statistic(
        "duplicate token", "duplicate-token score", "score",
        "attention to all earlier occurrences of this token, over rows that have one",
        "duplicate_token",
    ),
    "sink": _statistic(
        "first token", "attention to the first token", "score",
        "attention to the first token, in all rows but its own", "sink",
    ),
    "normalized_entropy": _statistic(
        "uniformity", "normalised entropy (1 = uniform)", "entropy",
        f"entropy / log(visible keys), over rows that see {KEYS} keys or more", "broad_entropy",
    ),
    "entropy": _statistic(
        "entropy", "entropy (nats)", "amount", "−Σ p log p over the visible keys", "entropy"
    ),
    "effective_keys": _statistic(
        "keys used", "effective number of keys", "amount",
        "exp(entropy): over how many keys a uniform head would spread like this", "effective_keys",
    ),
    "uniform_deficit": _statistic(
        "deficit", "log n − entropy (nats)", "amount",
        "log(visible keys) − entropy: 0 for a uniform head", "uniform_deficit",
    ),
    "mean_distance": _statistic(
        "distance", "tokens looked back", "amount",
        "mean distance from query to key, weighted by attention", "mean_distance",
    ),
    "write_norm": _statistic(
        "write", "norm of what the head writes", "amount",
        "‖z W_O‖, mean over tokens", "write_norm",
    ),
    "effect": Metric(
        "Δloss", "Δloss in nats, ablated − clean", "effect",
        "loss with the head at 0 − loss as it is, over scored targets",
        'ablation.sweep(model, batch, kind="zero").effect',
    ),
    "importance": Metric(
        "importance", "importance (logits)", "amount",
        "|∂ logit difference / ∂ξ| with ξ a factor on the head’s z, mean over examples "
        "(Michel et al. 2019, there of the loss)",
        "ablation.importance(model, batch, exact=False).importance",
    ),
    "copying": Metric(
        "copying", "copying score", "signed",
        "Σ Re λ / Σ |λ| over the eigenvalues of W_E W_OV W_U: 1 copies, −1 suppresses",
        "circuits.copying_score(model)",
    ),
}  # fmt: skip

FIELDS: dict[str, str] = {  # of `HeadStatistics`, by metric
    metric: about.python.rsplit(".", 1)[1]
    for metric, about in METRICS.items()
    if about.python.startswith("probes.")
}


def batch_for(opened: Opened, prompt: Prompt | None) -> Batch:
    """The prompt, or held-out samples if none is given; one sequence where there are no samples."""
    if prompt is not None:
        return prompt.batch
    return samples(opened) or sample(opened, 0).batch


def asking(opened: Opened, prompt: Prompt | None) -> Batch:
    """The same, for what needs a loss.

    Raises:
        UnreadableError: Nothing is asked there.
    """
    batch = batch_for(opened, prompt)
    if not bool((batch.targets != UNSCORED).any()):
        raise UnreadableError("nothing is asked of these tokens, so there is no loss to change")
    return batch


def statistics(opened: Opened, prompt: Prompt | None) -> probes.HeadStatistics:
    """All statistics of all heads."""
    config = opened.model.config
    if any(isinstance(config.rule(layer), Featured) for layer in range(config.n_layers)):
        raise UnreadableError("this model has layers without softmax: its heads have no pattern")
    return statistics_of(opened.model, batch_for(opened, prompt))


def statistics_of(model: Any, batch: Batch) -> probes.HeadStatistics:
    """All statistics of a model's heads; of short sequences, every row counts as near-uniform."""
    least = probes.least_keys(batch.mask)
    return probes.head_statistics(model, batch.tokens, mask=batch.mask, min_keys=least)


def column(found: probes.HeadStatistics, metric: str) -> np.ndarray:
    """One of the statistics, [L H]."""
    return as_floats(getattr(found, FIELDS[metric]))


def sweep(
    opened: Opened,
    prompt: Prompt | None,
    instead: Instead = ZERO,
    *,
    progress: Progress | None = None,
) -> ablation.HeadSweep:
    """Δloss of each head, cut alone."""
    batch = asking(opened, prompt)
    with refusals():
        found = ablation.sweep(opened.model, batch, progress=progress, **instead.options(batch))
    assert isinstance(found, ablation.HeadSweep)
    return found


def values(opened: Opened, metric: str, prompt: Prompt | None) -> np.ndarray:
    """One number a head, [L H]."""
    if metric == "effect":
        return as_floats(sweep(opened, prompt).effect)
    if metric == "importance":
        found = ablation.importance(opened.model, asking(opened, prompt), exact=False)
        return as_floats(found.importance)
    if metric == "copying":
        return as_floats(circuits.copying_score(opened.model))
    return column(statistics(opened, prompt), metric)


def highest(scores: np.ndarray) -> tuple[int, int] | None:
    """The head with the highest score [L H]; None where no head has one."""
    if not np.isfinite(scores).any():
        return None
    layer, head = np.unravel_index(np.nanargmax(scores), scores.shape)
    return int(layer), int(head)


def induction_heads(opened: Opened) -> probes.InductionHeads | None:
    """The induction heads, with evidence; None if the model has no room for the trials."""
    try:
        return probes.find_induction_heads(opened.model)
    except ValueError:
        return None


def is_causal(opened: Opened) -> bool:
    """Whether no layer looks ahead."""
    kinds = opened.model.config.attention
    return "full" not in ((kinds,) if isinstance(kinds, str) else kinds)


def pattern(opened: Opened, prompt: Prompt, layer: int, head: int, what: What) -> np.ndarray:
    """Where each token looks: [T T] of one head."""
    name = "attn_scores" if what == "scores" else "pattern"
    names = [f"blocks.{layer}.attn.hook_{name}", f"blocks.{layer}.attn.hook_v"]
    with torch.no_grad():
        _, cache = opened.model.run_with_cache(prompt.batch.tokens, names_filter=names)
    weights = as_floats(cache[names[0]][0, head])
    if what != "value-weighted":
        return weights
    v = cache[names[1]][0]
    sharing = opened.model.config.n_heads // v.shape[1]
    return weights * as_floats(v[:, head // sharing].float().norm(dim=-1))


def thumbnails(opened: Opened, prompt: Prompt) -> np.ndarray:
    """Every head's pattern, pooled to what a thumbnail shows: [L H t t]."""
    pooled = []
    for layer in range(opened.model.config.n_layers):
        name = f"blocks.{layer}.attn.hook_pattern"
        with torch.no_grad():
            _, cache = opened.model.run_with_cache(prompt.batch.tokens, names_filter=name)
        block = pool_factor(len(prompt.tokens), TILE_CELLS)
        pooled.append(max_pool(as_floats(cache[name][0]), block, block))
    return np.stack(pooled)
