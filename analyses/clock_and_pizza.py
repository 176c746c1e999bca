"""Do networks that add modulo p by other algorithms differ in what their logits depend on?

Question: Two transformers add modulo p without an error. One attends as it likes, the other's
    attention is held uniform. Do gradient symmetricity and distance irrelevance tell that the
    first is a clock (angles are multiplied) and the second a pizza (vectors are added)?
Method: Zhong et al.'s task: a and b, no "=", the answer read at b, so that even uniform attention
    leaves a and b unlike. Uniform attention is the same model with scores multiplied by 1e-30.
    Both measures by the paper's definitions 4.1 and 4.2, for some seeds of each.
Finding: In part. Free attention gives clocks by both measures in three seeds (symmetricity 0.22 to
    0.43, irrelevance 0.81 to 0.86; published 0.33 and 0.85). Uniform attention gives pizzas in two
    of three (symmetricity 0.993 and 0.981, irrelevance 0.16 and 0.25; published 0.994 and 0.17).
    The third is as symmetric (0.993), which uniform attention all but forces, since only b's own
    way past the head is not shared, yet its right logit hardly depends on the distance (0.91). All
    six answer every pair. So symmetricity told the two apart in every pair of seeds, irrelevance in
    two thirds of them. Trained for 2,000 steps on drawn pairs with a float32 loss, uniform
    attention had come to 0.61 to 0.67.
Run: python analyses/clock_and_pizza.py OUT
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import panels
import published
import torch
import typer
from modular import PUBLISHED, FullBatch, trained_pairs
from published import Comparison, verdict
from torch import Tensor

import interp
from interp import TransformerConfig
from interp.circuits import distance_irrelevance, fourier, gradient_symmetricity
from interp.tasks.modular_addition import ModularAddition

Attention = Literal["uniform", "free"]
SCALES: dict[Attention, float | None] = {"uniform": 1e-30, "free": None}
SYMMETRIC, IRRELEVANT = 0.9, 0.4  # a pizza lies above the first and below the second
SOURCE = (
    "Zhong, Liu, Tegmark, Andreas 2023, "
    '"The Clock and the Pizza: Two Stories in Mechanistic Explanation of Neural Networks"'
)


@dataclass(frozen=True)
class Size:
    """What is trained, and for how long."""

    p: int = 59
    d_model: int = 64
    steps: int = 3000
    seeds: int = 3


QUICK = Size(p=13, d_model=32, steps=300, seeds=1)


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write clock_and_pizza.json and clock_and_pizza.html; the runs are kept in OUT/runs."""
    size = QUICK if quick else Size()
    logits, found = {}, {}
    for kind in SCALES:
        found[kind] = []
        for seed in range(size.seeds):
            model = adder(out, kind, seed=seed, size=size)
            table = fourier.logits_of_pairs(model, size.p)
            found[kind].append(_measured(model, table, seed, size))
            logits.setdefault(kind, table)
    published.write(
        out,
        "clock_and_pizza",
        compared(found["uniform"], found["free"]),
        source=SOURCE,
        numbers={"size": vars(size), "uniform": found["uniform"], "free": found["free"]},
        figure=_figure(found, logits),
        departures=departures(size),
    )


def departures(size: Size) -> list[str]:
    """Each setting that is not the paper's."""
    return [
        f"width {size.d_model} and {4 * size.d_model} neurons in place of 128 and 512",
        f"{size.steps} full-batch steps in place of 20,000",
        "uniform attention gives each of the two tokens 1/2, theirs gives 1: half of W_V",
        "attention rates between 0 and 1 are not tried",
        "biases are not decayed",
    ]


def adder(out: Path, kind: Attention, *, seed: int, size: Size) -> interp.Transformer:
    """A trained model; what OUT holds of it is gone on with."""
    config = TransformerConfig(
        n_layers=1,
        n_heads=4,
        d_model=size.d_model,
        d_mlp=4 * size.d_model,
        activation="relu",
        d_vocab=size.p,
        n_ctx=2,
        normalization="none",
        attention="full",
        attention_scale=SCALES[kind],
        bias=("mlp",),
        init_scale=1.0,
        init_seed=seed,
    )
    task = _task(size, seed)
    return interp.train(
        config,
        FullBatch(task, signed=False),
        out=out / "runs" / f"{kind} {seed}",
        resume=True,
        seed=seed,
        steps=size.steps,
        batch_size=task.train_pairs,
        weight_decay=2.0,
        loss_precision="float64",
        evaluate_every=size.steps,
        checkpoints_per_octave=0,
        progress=False,
        **PUBLISHED,
    ).model


def _task(size: Size, seed: int) -> ModularAddition:
    return ModularAddition(p=size.p, fraction=0.8, split_seed=seed)


def _measured(model: interp.Transformer, logits: Tensor, seed: int, size: Size) -> dict[str, Any]:
    right = logits.argmax(-1) == fourier.sums(size.p)
    unseen = ~trained_pairs(_task(size, seed))
    generator = torch.Generator().manual_seed(seed)
    found = {
        "accuracy": float(right.float().mean()),
        "held_out_accuracy": float(right[unseen].float().mean()),
        "symmetricity": gradient_symmetricity(model, size.p, generator=generator),
        "irrelevance": distance_irrelevance(logits),
        "keys": fourier.key_frequencies(logits),
    }
    print(seed, found, flush=True)
    return found


# --- what is said of it ------------------------------------------------------------------------


def compared(uniform: list[dict[str, Any]], free: list[dict[str, Any]]) -> list[Comparison]:
    """Each finding beside ours, with the verdict that its rule gives."""
    every = [run["accuracy"] for run in (*uniform, *free)]
    pizzas = [r["symmetricity"] > SYMMETRIC and r["irrelevance"] < IRRELEVANT for r in uniform]
    clocks = [r["symmetricity"] < SYMMETRIC and r["irrelevance"] > IRRELEVANT for r in free]
    return [
        Comparison(
            "Accuracy on all pairs",
            "1.000 (others are left out)",
            f"uniform {_listed(uniform, 'accuracy')}; free {_listed(free, 'accuracy')}",
            verdict(min(every) == 1, partly=min(every) > 0.98),
        ),
        Comparison(
            "Uniform attention: gradient symmetricity, distance irrelevance",
            "0.994 and 0.17 (model A, a pizza)",
            f"{_listed(uniform, 'symmetricity')} and {_listed(uniform, 'irrelevance')}",
            verdict(all(pizzas), partly=any(pizzas)),
            f"a pizza has over {SYMMETRIC} and under {IRRELEVANT}: {sum(pizzas)} of {len(pizzas)}",
        ),
        Comparison(
            "Free attention: gradient symmetricity, distance irrelevance",
            "0.334 and 0.85 (model B, a clock)",
            f"{_listed(free, 'symmetricity')} and {_listed(free, 'irrelevance')}",
            verdict(all(clocks), partly=any(clocks)),
            f"a clock has under {SYMMETRIC} and over {IRRELEVANT}: {sum(clocks)} of {len(clocks)}",
        ),
        _told_apart(uniform, free),
    ]


def _told_apart(uniform: list[dict[str, Any]], free: list[dict[str, Any]]) -> Comparison:
    """Whether a threshold on each measure parts the two, in all pairs of seeds."""
    pairs = [(a, b) for a in uniform for b in free]
    symmetric = sum(a["symmetricity"] > b["symmetricity"] for a, b in pairs) / len(pairs)
    relevant = sum(a["irrelevance"] < b["irrelevance"] for a, b in pairs) / len(pairs)
    return Comparison(
        "The two measures tell the two apart",
        "both do",
        f"uniform is the more symmetric in {symmetric:.0%} of pairs of seeds, and depends more on "
        f"distance in {relevant:.0%}",
        verdict(symmetric == relevant == 1, partly=max(symmetric, relevant) == 1),
    )


def _listed(runs: list[dict[str, Any]], name: str) -> str:
    return ", ".join(f"{run[name]:.4g}" for run in runs)


def right_logits(logits: Tensor) -> Tensor:
    """The right answer's logit by a − b (rows) and a + b (columns)."""
    p = len(logits)
    right = logits.gather(-1, fourier.sums(p)[..., None])[..., 0]
    numbers = torch.arange(p)
    table = torch.empty_like(right)
    table[(numbers[:, None] - numbers) % p, fourier.sums(p)] = right
    return table


def _figure(found: dict[Attention, list[dict[str, Any]]], logits: dict[Attention, Tensor]) -> Any:
    from plotly import graph_objects as go

    titles = ("Both measures", "Uniform attention: right logit", "Free attention: right logit")
    made = panels.figure("Clock or pizza: what do the logits depend on?", titles, columns=3)
    for style, (kind, runs) in enumerate(found.items()):
        x, y = ([run[name] for run in runs] for name in ("symmetricity", "irrelevance"))
        dots = panels.points(x, y, name=f"{kind} attention", style=style)
        made.add_trace(dots, **panels.place(0, 3))
    for panel, table in enumerate(logits.values(), 1):
        heat = go.Heatmap(z=right_logits(table).tolist(), colorscale="Viridis", showscale=False)
        made.add_trace(heat, **panels.place(panel, 3))
        panels.axes(made, panel, x="a + b mod p", y="a − b mod p", columns=3)
    panels.axes(made, 0, x="gradient symmetricity", y="distance irrelevance", columns=3)
    made.update_xaxes(range=[-0.05, 1.05], **panels.place(0, 3))
    made.update_yaxes(range=[-0.05, 1.05], **panels.place(0, 3))
    return made


if __name__ == "__main__":
    typer.run(main)
