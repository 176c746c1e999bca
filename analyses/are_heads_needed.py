"""How many heads does a model need, and do importance scores say which?

Question: Cut one after the other, the least important first, how many heads can go; and is the
    order by first-order importance (Michel et al. 2019) better than others, and than chance?
Method: Heads are set to zero cumulatively on held-out sequences, in the order of importance by
    the logit difference, by the loss, of the effect that each has when cut alone, and in random
    orders. A head can go while the loss rises by at most 0.05 nats.
Finding: In the demo's model (two layers of four heads, seeds 0 to 2) few can go, and importance is
    no safe guide. In the order of their effect when cut alone, two heads can go in each seed;
    by importance of the loss one, two and one; by that of the logit difference two, two and
    none, against a median of one in random orders. The scores' rank correlation with exact
    effects is 0.71, 0.93 and 0.12 (logit difference) and 0.69, 0.98 and 0.86 (loss). After five
    or six cuts every order has lost what there is to lose (5.8 to 6.2 nats): the heads back each
    other up, so that none is cheap for long. Michel et al.'s finding, that many heads can go, was
    of models with far more heads than their task needed.
Run: python analyses/are_heads_needed.py OUT --run runs/demo
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from interp import ablation, plots
from interp.ablation.outcomes import head_name
from interp.report import Subject, subject_of
from interp.results import plain, write_atomic

ALLOWED = 0.05
RANDOM_ORDERS = 20

Order = list[tuple[int, int]]


def main(
    out: Annotated[Path, typer.Argument(file_okay=False)], run: Path = Path("runs/demo")
) -> None:
    """Write are_heads_needed.json and are_heads_needed.html to a folder."""
    subject = subject_of(run)
    orders, correlations = _orders(subject)
    curves = {name: _cumulative(subject, order) for name, order in orders.items()}
    chance = torch.stack([_cumulative(subject, order) for order in _random_orders(subject)])
    numbers = {
        "run": run,
        "step": subject.step,
        "sequences": len(subject.batch),
        "allowed": ALLOWED,
        "orders": {name: [head_name(h) for h in order] for name, order in orders.items()},
        "rank_correlation_with_exact": correlations,
        "loss_rise": curves | {"random": chance},
        "can_go": {name: _can_go(curve) for name, curve in curves.items()},
        "can_go_at_random": [_can_go(curve) for curve in chance],
    }
    write_atomic(out / "are_heads_needed.json", json.dumps(plain(numbers), indent=1) + "\n")
    write_atomic(out / "are_heads_needed.html", plots.to_html(_figure(curves, chance)))


def _orders(subject: Subject) -> tuple[dict[str, Order], dict[str, float | None]]:
    by_logits = ablation.importance(subject.model, subject.batch)
    by_loss = ablation.importance(subject.model, subject.batch, metric="loss")
    exact = ablation.sweep(subject.model, subject.batch).effect
    heads = exact.shape[1]
    ascending = [divmod(i, heads) for i in exact.flatten().argsort().tolist()]
    orders = {
        "importance by logit difference": by_logits.order(),
        "importance by loss": by_loss.order(),
        "effect when cut alone": ascending,
    }
    return orders, {
        "importance by logit difference": by_logits.rank_correlation,
        "importance by loss": by_loss.rank_correlation,
    }


def _random_orders(subject: Subject) -> list[Order]:
    config, draw = subject.model.config, torch.Generator().manual_seed(0)
    n = config.n_layers * config.n_heads
    orders = [torch.randperm(n, generator=draw).tolist() for _ in range(RANDOM_ORDERS)]
    return [[divmod(i, config.n_heads) for i in order] for order in orders]


def _cumulative(subject: Subject, order: Order) -> torch.Tensor:
    """Loss less that of the whole model, with 0, 1, 2, … heads cut."""
    group = ablation.group(subject.model, subject.batch, heads=order)
    return torch.cat([torch.zeros(1), group.cumulative])


def _can_go(curve: torch.Tensor) -> int:
    """How many heads can be cut, in this order, before the loss has risen too far."""
    too_far = (curve > ALLOWED).nonzero()
    return int(too_far[0]) - 1 if len(too_far) else len(curve) - 1


def _figure(curves: dict[str, Any], chance: torch.Tensor) -> plots.Figure:
    return plots.scores_by_step(
        list(range(chance.shape[1])),
        curves | {"random orders, mean": chance.mean(0)},
        name="Δloss in nats, heads cut − whole model",
        log_steps=False,
        title="How many heads can be cut (across), and in which order?",
    )


if __name__ == "__main__":
    typer.run(main)
