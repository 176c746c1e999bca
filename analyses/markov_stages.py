"""Does a transformer learn Markov chains in context by stages: uniform, unigram, bigram?

Question: Each sequence comes from a random Markov chain of its own. Does a two-layer attention-only
    model first guess evenly, then count states, then count the steps from the present state; and
    what does it wait for?
Method: Edelman et al.'s task with three states. The best losses that each of the three ways of
    counting allows, and over training KL(way ‖ model) for each, on the same held-out chains. A
    stage starts where its way is the nearest from then on. Beside it the first layer's
    previous-token score; and the same model on doubly stochastic chains, on which counting states
    says nothing.
Finding: In part. The best losses are 1.099, 1.004, 0.886 on 40,000 chains (published, on 4,000:
    1.099, 1.007, 0.889). In three seeds the nearest way is uniform until step 40 to 49, then
    unigram, and bigram from step 300 on; the first layer's previous-token score rises to 0.89 to
    0.92 around that transition (steps 200 to 700). After 2,000 steps the model is near the bigram
    way, not at it: KL 0.028 to 0.030 nats. Logits that are linear in the frequencies, as a head
    without an MLP gives them, come to 0.026 at best: what is missing is that few counts are
    trusted less. That unigrams delay it did not come out: on doubly stochastic chains the head is
    half-way earlier in two seeds (steps 245 and 288, against 291 and 302), later in the third (551,
    310), and the bigram way is the nearest only from step 861 to 1,328 on. There is 0.084 nats to
    gain by counting steps there, and 0.117 on the other chains. Positions and norms matter: in
    single trials with layer norms, or with ALiBi, the loss stayed at the unigram level for 600 and
    1,000 steps.
Run: python analyses/markov_stages.py OUT
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import panels
import published
import torch
import typer
from markov_chains import LENGTH, ORDERS, STATES, best_loss, doubly_stochastic, linear_limit
from published import Comparison, verdict
from torch import Tensor

import interp
from interp import TransformerConfig, dynamics, probes, tasks
from interp.metrics import UNSCORED, mean_loss, per_token_kl
from interp.tasks import Batch, counted_predictions

PUBLISHED = {"uniform": 1.099, "unigram": 1.007, "bigram": 0.889}
DEVIATION = 0.17  # of a chain's loss; the published numbers are means over 4,000 chains
NEAR = 0.03  # nats of KL: a quarter of what lies between unigram and bigram
SOURCE = (
    "Edelman, Edelman, Goel, Malach, Tsilivis 2024, "
    '"The Evolution of Statistical Induction Heads: In-Context Learning Markov Chains"'
)
DEPARTURES = (
    "rotary positions in place of learned relative ones, in both layers; no normalisation",
    "AdamW with a learning rate of 3e-3",
    "doubly stochastic chains are flat mixtures of the six permutations",
)


@dataclass(frozen=True)
class Size:
    """How much is trained and measured."""

    seeds: int = 3
    steps: int = 2000
    chains: int = 40_000
    followed: int = 400  # chains that every checkpoint is measured on
    d_model: int = 16
    per_octave: int = 8  # checkpoints


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write markov_stages.json and markov_stages.html; the runs are kept in OUT/runs."""
    size = Size(1, 60, chains=400, followed=50, per_octave=2) if quick else Size()
    chains = tasks.make("markov", vocab=STATES, length=LENGTH).batch(
        size.chains, torch.Generator().manual_seed(1), split="held_out"
    )
    even = doubly_stochastic(size.followed, torch.Generator().manual_seed(1))
    best = {order: best_loss(chains, order) for order in ORDERS}
    linear = linear_limit(chains[: size.followed])
    of_even = {order: best_loss(even, order) for order in ORDERS}
    found = {
        "markov": [
            followed(out, "markov", seed=s, size=size, chains=chains) for s in range(size.seeds)
        ],
        "doubly stochastic": [
            followed(out, "doubly stochastic", seed=s, size=size, chains=even)
            for s in range(size.seeds)
        ],
    }
    published.write(
        out,
        "markov_stages",
        compared(best, found, linear, chains=size.chains),
        source=SOURCE,
        numbers={
            "size": vars(size),
            "best_loss": best,
            "best_loss_doubly_stochastic": of_even,
            "kl_linear_in_frequencies": linear,
            "runs": found,
        },
        figure=_figure(best, found["markov"][0], found["doubly stochastic"][0]),
        departures=DEPARTURES,
    )


# --- a run -----------------------------------------------------------------------------------


def followed(out: Path, kind: str, *, seed: int, size: Size, chains: Batch) -> dict[str, Any]:
    """Train on a kind of chain, and measure every checkpoint on held-out ones."""
    config = TransformerConfig(
        n_layers=2,
        n_heads=1,
        d_model=size.d_model,
        d_vocab=STATES,
        n_ctx=LENGTH,
        positional="rotary",
        normalization="none",
        init_seed=seed,
    )
    source = tasks.make("markov", vocab=STATES, length=LENGTH)
    run = interp.train(
        config,
        source if kind == "markov" else doubly_stochastic,
        out=out / "runs" / f"{kind} {seed}",
        resume=True,
        seed=seed,
        steps=size.steps,
        learning_rate=3e-3,
        schedule="constant",
        evaluate_every=size.steps,
        checkpoints_per_octave=size.per_octave,
        progress=False,
    )
    some = chains[: size.followed]
    ways = {o: counted_predictions(some.tokens, vocab=STATES, order=o) for o in ORDERS}
    points = [_measured(run.load(step), some, ways) for step in run.steps]
    curves = {name: [point[name] for point in points] for name in points[0]}
    return {"steps": run.steps, **curves, **summary(run.steps, curves), "end": _end(run, chains)}


@torch.no_grad()
def _measured(model: interp.Transformer, some: Batch, ways: dict[str, Tensor]) -> dict[str, float]:
    logits, scored = model(some.tokens), some.targets != UNSCORED
    heads = probes.head_statistics(model, some.tokens)
    return {
        "loss": round(float(mean_loss(logits, some.targets)), 4),
        **{f"kl_{o}": round(float(per_token_kl(logits, ways[o])[scored].mean()), 4) for o in ways},
        "previous_token": round(float(heads.previous_token[0, 0]), 3),
    }


@torch.no_grad()
def _end(run: interp.Run, chains: Batch) -> float:
    return float(mean_loss(run.model(chains.tokens), chains.targets))


def summary(steps: list[int], curves: dict[str, list[float]]) -> dict[str, Any]:
    """Which way is the nearest at each checkpoint, where stages start, and where the head forms."""
    nearest = [
        min(ORDERS, key=lambda order, at=at: curves[f"kl_{order}"][at]) for at in range(len(steps))
    ]
    head = dynamics.formation(steps, curves["previous_token"])
    return {
        "stages": [o for o, before in zip(nearest, [None, *nearest], strict=False) if o != before],
        "unigram_from": _first(steps, nearest, ("unigram", "bigram")),
        "bigram_from": _first(steps, nearest, ("bigram",)),
        "head_from": head.low,
        "head_half": head.step,
        "head_to": head.high,
    }


def _first(steps: list[int], nearest: Sequence[str], wanted: tuple[str, ...]) -> int | None:
    """The first step from which the nearest way is one of those wanted; None: never to the end."""
    others = [at for at, order in enumerate(nearest) if order not in wanted]
    first = others[-1] + 1 if others else 0
    return steps[first] if first < len(steps) else None


# --- what is said of it ------------------------------------------------------------------------


def compared(
    best: dict[str, float], found: dict[str, list[dict[str, Any]]], linear: float, *, chains: int
) -> list[Comparison]:
    """Each finding beside ours, with the verdict that its rule gives."""
    sampling = 2 * DEVIATION * (1 / chains + 1 / 4000) ** 0.5
    runs, even = found["markov"], found["doubly stochastic"]
    staged = [run["stages"] == list(ORDERS) for run in runs]
    kl = [run["kl_bigram"][-1] for run in runs]
    ends = ", ".join(f"{run['end']:.3f}" for run in runs)
    close = [abs(best[o] - PUBLISHED[o]) <= sampling for o in ORDERS]
    return [
        Comparison(
            "Best losses with three states, nats: uniform, unigram, bigram",
            ", ".join(f"{PUBLISHED[o]:.3f}" for o in ORDERS),
            ", ".join(f"{best[o]:.3f}" for o in ORDERS),
            verdict(all(close), partly=any(close)),
            f"agreement is within {sampling:.3f} nats, twice what sampling leaves open",
        ),
        Comparison(
            "The nearest way of counting over training",
            "uniform, then unigram, then bigram",
            f"so in {sum(staged)} of {len(runs)} seeds; unigram from step "
            f"{_listed(runs, 'unigram_from')}, bigram from step {_listed(runs, 'bigram_from')}",
            verdict(all(staged), partly=any(staged)),
        ),
        Comparison(
            "Where it ends",
            "at the bigram solution, which is the best possible",
            f"KL(bigram ‖ model) {', '.join(f'{x:.3f}' for x in kl)} nats, loss {ends}",
            verdict(max(kl) < NEAR / 3, partly=max(kl) < NEAR * 2),
            f"by rule: under {NEAR / 3:.2f} nats is there, under {NEAR * 2:.2f} near it; logits "
            f"that are linear in the frequencies come to {linear:.3f}",
        ),
        _head(runs),
        _sooner(runs, even),
    ]


def _head(runs: list[dict[str, Any]]) -> Comparison:
    held = [
        None not in (run["bigram_from"], run["head_half"])
        and run["head_from"] <= run["bigram_from"] <= run["head_to"]
        for run in runs
    ]
    spans = "; ".join(f"{_step(run['head_from'])} to {_step(run['head_to'])}" for run in runs)
    scores = ", ".join(f"{run['previous_token'][-1]:.2f}" for run in runs)
    return Comparison(
        "The first layer's previous-token head",
        "forms in the transition from unigram to bigram",
        f"rises in steps {spans}, to {scores}; the bigram stage starts at "
        f"{_listed(runs, 'bigram_from')}",
        verdict(all(held), partly=any(held)),
    )


def _sooner(runs: list[dict[str, Any]], even: list[dict[str, Any]]) -> Comparison:
    by_stage, by_head = (
        [
            None not in (run[name], other[name]) and other[name] < run[name]
            for run, other in zip(runs, even, strict=True)
        ]
        for name in ("bigram_from", "head_half")
    )
    return Comparison(
        "Chains on which counting states says nothing",
        "the bigram solution is found sooner: the unigram one delays it",
        f"bigram the nearest from step {_listed(even, 'bigram_from')}, against "
        f"{_listed(runs, 'bigram_from')} on the others; half of the head by step "
        f"{_listed(even, 'head_half')}, against {_listed(runs, 'head_half')}",
        verdict(all(by_stage) and all(by_head), partly=all(by_stage) or all(by_head)),
        "there is less to gain on these chains, and the counts are not the best guess for them",
    )


def _listed(runs: list[dict[str, Any]], name: str) -> str:
    return ", ".join(_step(run[name]) for run in runs)


def _step(step: float | None) -> str:
    return "none" if step is None else f"{step:.0f}"


def _figure(best: dict[str, float], run: dict[str, Any], even: dict[str, Any]) -> Any:
    titles = ("Distance to each way of counting", "Loss, and the best of each way",
              "The previous-token head", "Without unigram information")  # fmt: skip
    made = panels.figure(
        "Does in-context learning of Markov chains come in stages?", titles, height=680
    )
    for style, order in enumerate(ORDERS):
        name = f"kl_{order}"
        for panel, of in ((0, run), (3, even)):
            curve = panels.line(
                of["steps"], of[name], name=order, style=style, showlegend=panel == 0
            )
            made.add_trace(curve, **panels.place(panel))
        ends = [run["steps"][1], run["steps"][-1]]
        level = panels.line(ends, [best[order]] * 2, name=order, style=style, showlegend=False)
        made.add_trace(level, **panels.place(1))
    loss = panels.line(run["steps"], run["loss"], name="the model", style=4)
    made.add_trace(loss, **panels.place(1))
    score = panels.line(run["steps"], run["previous_token"], name="first layer's head", style=3)
    made.add_trace(score, **panels.place(2))
    for panel, y in enumerate(("KL(way ‖ model), nats", "loss, nats", "score", "KL, nats")):
        panels.axes(made, panel, x="step", y=y)
    made.update_xaxes(type="log", dtick=1)
    return made


if __name__ == "__main__":
    typer.run(main)
