"""Measuring a model in training, without changing what comes next."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from interp.attention.features import Featured
from interp.dynamics import in_context_score
from interp.metrics import accuracy, loss, per_token_loss, scored_counts, weighted_mean
from interp.model import Transformer
from interp.probes import head_statistics, induction_scores
from interp.probes.induction import room_of
from interp.probes.sequences import SHORTEST
from interp.tasks import Batch
from interp.training.clamps import Clamped

SCORES = ("previous_token", "duplicate_token", "sink", "normalized_entropy")
SCORED_SEQUENCES = 32
REPEATS = 4  # sequences of random repeats a period, for the induction score


@contextmanager
def measuring(model: Transformer | Clamped) -> Iterator[None]:
    """The model in eval mode and without gradients; as it was when the block ends."""
    bare = model.model if isinstance(model, Clamped) else model
    was_training = bare.training
    bare.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        bare.train(was_training)


def held_out_scores(model: Transformer | Clamped, batch: Batch) -> dict[str, float]:
    """Loss in nats and accuracy over a batch's scored targets, and how much context helps."""
    with measuring(model):
        logits = model(batch.tokens, mask=None if bool(batch.mask.all()) else batch.mask)
        weights = scored_counts(batch.targets)
        return {
            "held_out_loss": float(weighted_mean(loss(logits, batch), weights)),
            "held_out_accuracy": float(weighted_mean(accuracy(logits, batch), weights)),
            "in_context_score": in_context_score(per_token_loss(logits, batch.targets)),
        }


def best_heads(model: Transformer | Clamped, batch: Batch) -> dict[str, list[float]]:
    """For each layer the maximum of each head score: `max_induction` and its like, [L].

    Induction is scored on repeats of random tokens, where the vocabulary and the context have
    room for them, so that it means the same for any task; all else on the batch's first sequences.
    Empty for models with layers that have no softmax.
    """
    config = model.config
    if any(isinstance(config.rule(layer), Featured) for layer in range(config.n_layers)):
        return {}
    some = batch[:SCORED_SEQUENCES]
    with measuring(model):
        found = head_statistics(model, some.tokens, mask=some.mask)
        scores = {name: getattr(found, name) for name in SCORES}
        scores["induction"] = found.induction
        if room_of(model).longest >= SHORTEST:
            scores["induction"] = induction_scores(model, n_sequences=REPEATS)
    return {f"max_{name}": score.amax(-1).tolist() for name, score in scores.items()}
