"""Chains of three states, drawn freely or with all states alike, and what counts allow on them."""

from itertools import permutations
from typing import get_args

import torch
import torch.nn.functional as F

from interp.metrics import UNSCORED, mean_loss, per_token_kl
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


def linear_limit(batch: Batch) -> float:
    """How near to the bigram way logits come that are linear in the frequencies, KL in nats.

    They are those of what followed the present state so far: what a head gives that looks at each
    state behind the present one. The way itself goes by counts, and trusts few of them less.
    """
    way = counted_predictions(batch.tokens, vocab=STATES, order="bigram")[batch.targets != UNSCORED]
    seen = F.one_hot(batch.tokens, STATES).double()
    steps = torch.einsum("bti,btj->btij", seen[:, :-1], seen[:, 1:]).cumsum(1)
    after = torch.einsum("bti,btij->btj", seen, F.pad(steps, (0, 0, 0, 0, 1, 0)))
    known = after.sum(-1, keepdim=True)
    frequency = torch.where(known > 0, after / known.clamp(min=1), 1 / STATES)
    given = F.pad(frequency, (0, 1), value=1.0)[batch.targets != UNSCORED]
    weights = torch.zeros(STATES + 1, STATES, dtype=torch.float64, requires_grad=True)
    fit = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def distance() -> torch.Tensor:
        fit.zero_grad()
        found = per_token_kl(given @ weights, way).mean()
        found.backward()
        return found

    fit.step(distance)
    return float(distance().detach())
