"""Chains of three states, drawn freely or with all states alike, and what counts allow on them."""

from itertools import permutations
from typing import get_args

import torch
import torch.nn.functional as F

from interp.metrics import mean_loss
from interp.tasks import Batch, counted_predictions
from interp.tasks.batch import next_token_batch
from interp.tasks.chains import Rows, walk
from interp.tasks.markov import Order

STATES, LENGTH = 3, 101
ORDERS: tuple[Order, ...] = get_args(Order)


def doubly_stochastic(n: int, generator: torch.Generator) -> Batch:
    """Walks along chains whose states are all as frequent: mixtures of permutations."""
    weights = torch.empty(n, 6, dtype=torch.float64).exponential_(generator=generator)
    orders = F.one_hot(torch.tensor(list(permutations(range(STATES)))), STATES).double()
    mixed = torch.einsum("np,pij->nij", weights / weights.sum(-1, keepdim=True), orders)
    start = Rows(torch.full((n, STATES), 1 / STATES))
    rows = Rows(mixed.flatten(0, 1))
    tokens = walk(start, rows, chain=torch.arange(n), length=LENGTH, generator=generator)
    return next_token_batch(tokens)


def best_loss(batch: Batch, order: Order) -> float:
    """The mean loss of predicting by counts, nats."""
    guess = counted_predictions(batch.tokens, vocab=STATES, order=order)
    return float(mean_loss(guess, batch.targets))
