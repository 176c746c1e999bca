"""Measuring a model in training, without changing what comes next."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from interp.metrics import accuracy, loss, scored_counts, weighted_mean
from interp.model import Transformer
from interp.tasks import Batch


@contextmanager
def measuring(model: Transformer) -> Iterator[None]:
    """The model in eval mode and without gradients; as it was when the block ends."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def held_out_scores(model: Transformer, batch: Batch) -> dict[str, float]:
    """Loss in nats and accuracy, over the scored targets of a batch."""
    with measuring(model):
        logits = model(batch.tokens, mask=None if bool(batch.mask.all()) else batch.mask)
        weights = scored_counts(batch.targets)
        return {
            "held_out_loss": float(weighted_mean(loss(logits, batch), weights)),
            "held_out_accuracy": float(weighted_mean(accuracy(logits, batch), weights)),
        }
