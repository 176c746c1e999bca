"""When does a model copy by content, and when does it look a fixed distance back?

Question: If repeats always come after the same number of tokens, looking back by that number is
    enough. Do models then learn the shortcut instead of induction, and how many different distances
    does it take until they learn induction?
Method: Blocks of random tokens, repeated: the answer is always one token less than the period back.
    Two-layer attention-only models, alike but for the periods they are trained on: 16 alone, or 16
    and 1, 3, 7 or 12 others of 8 to 24, drawn for each seed. 10, 14, 18 and 22 are withheld from
    all. Accuracy at each period, on sequences that none was trained on. Heads by
    `probes.find_induction_heads` at period 16: the score (attention to what followed earlier
    occurrences), and its control, which is the positional look-back score: attention of the same
    rows by the same distances in sequences of period 15, where no target stands there.
Finding: It came out, in three of three seeds. One distance: right at period 16 (1.00) and at 8, of
    which it is a multiple, and nowhere else (0.00 to 0.01 at withheld periods); all four heads of
    the second layer look 15 back whether or not a target stands there (0.98 to 1.00). 13 distances:
    four heads that pass as induction heads, right at withheld periods (0.97 to 1.00) and
    beyond the range of training; their look-back without a target is 0.03 to 0.08. The threshold
    lies between 4 and 8 of them: 1, 2, 4, 8 and 13 periods give 0.01, 0.03, 0.05, 0.99 and 0.99.
    Negative: few distances are not simply several look-backs. With 4, a model is right in 0.6 to
    0.7 of its own periods after as many steps, and no head passes either as positional or as
    induction; longer training was not tried.
Run: python analyses/shortcut.py OUT [--quick]; what is trained is kept in OUT/shortcut_runs.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from published import Comparison, span, verdict, write

import interp
from interp import Transformer, TransformerConfig, probes
from interp.tasks import Task, make

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SOURCE = (
    "Kawata et al. 2025, From Shortcut to Induction Head: How Data Diversity Shapes Algorithm "
    "Selection in Transformers"
)
DEPARTURES = (
    "Whole blocks repeat, and every repeated token is asked for; the paper has one trigger token, "
    "whose follower is asked for at its second occurrence.",
    "Two layers of four heads with rotary positions, AdamW; the paper proves it for one layer that "
    "is given the previous token, trained by gradient descent.",
    "Diversity is the number of periods, each as likely as the others; the paper's measure is a "
    "max-sum ratio of the distribution of distances.",
    "A shortcut is a look-back by a fixed distance here; the paper's is a fixed share of the "
    "length.",
)
LENGTH, VOCAB = 64, 64
PERIODS, REFERENCE, WITHHELD = range(8, 25), 16, (10, 14, 18, 22)
TESTED = tuple(range(6, 28))
NUMBERS = (1, 2, 4, 8, 13)
EXAMPLES = 64
SOLVED, FAILED = 0.95, 0.2  # accuracies
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True)
class Found:
    """What one model does.

    Attributes:
        periods: What it was trained on.
        accuracy: At each of `TESTED`.
        trained: Mean accuracy at its own periods.
        withheld: At those that no model was trained on.
        score: Of the head that attends most to targets at period 16, 0 to 1.
        look_back: That head's attention at the same distances where no target is.
        induction_heads: How many heads pass as such at the withheld periods.
        positional_heads: How many look back by a fixed distance, at period 16.
    """

    periods: tuple[int, ...]
    accuracy: tuple[float, ...]
    trained: float
    withheld: float
    score: float
    look_back: float
    induction_heads: int
    positional_heads: int


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write shortcut.json and shortcut.html to a folder."""
    seeds, numbers = (1, (1, 13)) if quick else (3, NUMBERS)
    training = {"steps": 200, "batch_size": 16} if quick else {"steps": 500, "batch_size": 32}
    runs = out / "shortcut_runs"
    found = {
        n: [measured(trained(runs, n, seed=seed, **training), n, seed) for seed in range(seeds)]
        for n in numbers
    }
    write(
        out,
        "shortcut",
        compared(found),
        source=SOURCE,
        departures=DEPARTURES,
        numbers={
            "seeds": seeds,
            **training,
            "tested": TESTED,
            "models": {n: [asdict(model) for model in models] for n, models in found.items()},
        },
        figure=_figure(found),
    )


def periods_of(n: int, seed: int) -> tuple[int, ...]:
    """The first `n` of an order of the periods that begins with 16: fewer are part of more."""
    others = [p for p in PERIODS if p not in (*WITHHELD, REFERENCE)]
    order = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    return tuple(sorted([REFERENCE, *(others[i] for i in order[: n - 1].tolist())]))


def task_of(periods: tuple[int, ...]) -> Task:
    """Repeats of these periods only."""
    low, high = min(periods), max(periods)
    out = tuple(p for p in range(low, high + 1) if p not in periods)
    options = {"min_period": low, "max_period": high, "withheld": out, "max_prefix": 16}
    return make("repeated_tokens", vocab=VOCAB, length=LENGTH, **options)


def trained(runs: Path, n: int, *, seed: int, steps: int, batch_size: int) -> Transformer:
    """A model of `n` periods; read, if the folder has it."""
    task = task_of(periods_of(n, seed))
    config = TransformerConfig(
        n_layers=2,
        n_heads=4,
        d_model=64,
        d_vocab=task.d_vocab,
        n_ctx=LENGTH,
        positional="rotary",
        bos_token=task.bos_token,
        init_seed=seed,
    )
    run = interp.train(
        config,
        task,
        out=runs / f"periods={n},seed={seed},steps={steps}",
        resume=True,
        progress=False,
        steps=steps,
        seed=seed,
        batch_size=batch_size,
        learning_rate=3e-3,
        checkpoints_per_octave=0,
        evaluate_every=steps,
    )
    return run.model


def measured(model: Transformer, n: int, seed: int) -> Found:
    """Accuracies and heads of a model that was trained on `n` periods."""
    periods, accuracy = periods_of(n, seed), tuple(accuracy_at(model, p) for p in TESTED)
    at = dict(zip(TESTED, accuracy, strict=True))
    known = probes.find_induction_heads(model, periods=[REFERENCE])
    score, control = (x.flatten() for x in (known.evidence.score, known.evidence.control))
    best = score.argmax()
    return Found(
        periods=periods,
        accuracy=accuracy,
        trained=sum(at[p] for p in periods) / len(periods),
        withheld=sum(at[p] for p in WITHHELD) / len(WITHHELD),
        score=float(score[best]),
        look_back=float(control[best]),
        induction_heads=len(probes.find_induction_heads(model, periods=WITHHELD)),
        positional_heads=len(known.positional),
    )


@torch.no_grad()
def accuracy_at(model: Transformer, period: int) -> float:
    """Share of repeated tokens that are said rightly at one period, on held-out sequences."""
    task, generator = task_of((period,)), torch.Generator().manual_seed(1)
    batch = task.batch(EXAMPLES, generator, split="held_out")
    asked = batch.targets >= 0
    return float((model(batch.tokens).argmax(-1) == batch.targets)[asked].float().mean())


# --- what is said of it --------------------------------------------------------------------------


def compared(found: dict[int, list[Found]]) -> list[Comparison]:
    """Each statement, with a verdict by rule: solved is 0.95 right, failed 0.2, in every seed."""
    one, many = found[min(found)], found[max(found)]
    enough = [n for n, models in found.items() if min(_all(models, "withheld")) >= SOLVED]
    means = [sum(_all(models, "withheld")) / len(models) for models in found.values()]
    return [
        Comparison(
            "One distance: a shortcut, which fails elsewhere",
            "too little diversity: a positional shortcut, no generalisation",
            f"right at its own period {_span(one, 'trained')}, at withheld ones "
            f"{_span(one, 'withheld')}",
            verdict(min(_all(one, "trained")) >= SOLVED and max(_all(one, "withheld")) <= FAILED),
        ),
        Comparison(
            f"{max(found)} distances: induction, which holds elsewhere",
            "enough diversity: an induction head, generalisation",
            f"right at its own periods {_span(many, 'trained')}, at withheld ones "
            f"{_span(many, 'withheld')}; {_span(many, 'induction_heads')} induction heads",
            verdict(
                min(_all(many, "withheld")) >= SOLVED and min(_all(many, "induction_heads")) >= 1
            ),
        ),
        Comparison(
            "Heads of the one look back by position, of the other by content",
            "attention at a fixed position against attention after the trigger",
            f"look-back score of the best head (its induction score): {_span(one, 'look_back')} "
            f"({_span(one, 'score')}) against {_span(many, 'look_back')} ({_span(many, 'score')})",
            verdict(min(_all(one, "look_back")) >= 0.5 and max(_all(many, "look_back")) <= 0.1),
        ),
        Comparison(
            "The more distances, the more holds elsewhere, with a threshold between",
            "a transition as the max-sum ratio falls",
            "right at withheld periods, mean of seeds: "
            + ", ".join(f"{n}: {mean:.2f}" for n, mean in zip(found, means, strict=True))
            + (f"; in every seed from {min(enough)} periods on" if enough else ""),
            verdict(bool(enough) and _rises(means), partly=bool(enough)),
        ),
    ]


def _rises(means: list[float]) -> bool:
    """Whether none is lower than the one before by more than seeds of solved models differ."""
    return all(b > a - (1 - SOLVED) for a, b in pairwise(means))


def _all(models: list[Found], name: str) -> list[float]:
    return [getattr(model, name) for model in models]


def _span(models: list[Found], name: str) -> str:
    return span(_all(models, name))


def _figure(found: dict[int, list[Found]]) -> "Figure":
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    titles = ("Accuracy at each period (mean of seeds)", "Withheld periods, and the best head")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.1)
    for (n, models), colour, dash in zip(found.items(), COLOURS, DASHES, strict=False):
        line = {"color": colour, "dash": dash}
        y = torch.tensor([model.accuracy for model in models]).mean(0).tolist()
        name = f"{n} period{'s' if n > 1 else ''}"
        figure.add_trace(go.Scatter(x=TESTED, y=y, name=name, line=line), row=1, col=1)
    shown = {
        "withheld": "accuracy, withheld periods",
        "score": "best head: attention to targets",
        "look_back": "the same look-back without targets",
    }
    for (field, name), colour, dash in zip(
        shown.items(), ("#000000", "#56B4E9", "#D55E00"), DASHES, strict=False
    ):
        y = [sum(_all(models, field)) / len(models) for models in found.values()]
        line = {"color": colour, "dash": dash}
        trace = go.Scatter(x=list(found), y=y, name=name, line=line, mode="lines+markers")
        figure.add_trace(trace, row=1, col=2)
    for period in WITHHELD:
        line = {"color": "#999999", "dash": "dot", "width": 1}
        ends = {"x0": period, "x1": period, "y0": 0, "y1": 1, "xref": "x", "yref": "y domain"}
        figure.add_shape(type="line", line=line, **ends)
    figure.update_xaxes(title_text="period (dotted: withheld from all)", row=1, col=1)
    figure.update_xaxes(title_text="periods in training", type="log", row=1, col=2)
    figure.update_xaxes(tickvals=list(found), row=1, col=2)
    figure.update_yaxes(range=[-0.03, 1.05])
    figure.update_layout(
        title="How many distances does it take to learn induction?",
        template="plotly_white",
        legend={"orientation": "h", "y": -0.18},
    )
    return figure


if __name__ == "__main__":
    typer.run(main)
