"""How does a network come to generalise long after it has memorised?

Question: A one-layer transformer learns addition modulo p from some of all pairs. It knows those by
    heart early, and the others much later: is there a Fourier circuit, does it grow before the
    test loss falls, and is memory cleaned up after that?
Method: Nanda et al.'s setting at a smaller p: at 113, 14,000 full batches are an hour of one core.
    Key frequencies are read off the last checkpoint's logits; restricted and excluded loss of these
    at every checkpoint, by the paper's definitions. Phases by rule: memorised when the training
    loss is first under 1 % of ln p; clean-up starts after the last checkpoint whose test loss is
    over half of its peak, and ends when it is first under 1 % of ln p; circuit formation lies
    between. These rules were made for p = 43, 65 % of its pairs, half the width and a float32 loss,
    where the circuit grew while pairs were memorised; none was changed. p and share were kept after
    a look at 2,800 steps; half the width, 40 %: no circuit by 1,290.
Finding: The three phases are there, with one seed. Pairs are memorised by step 128; restricted loss
    then falls from 4.7 to 0.42, and excluded loss, least at step 645 (0.01), rises to 4.3, before
    the test loss is at half of its peak (step 3,649); it is under 1 % of ln p at 6,889. It is not
    flat before: 20 at step 1,290, 10.5 at 3,649. Three of 33 frequencies make up 99 % of the
    logits' variance. All pairs are answered: full loss 6e-7, restricted 5e-8, excluded 8.4. Not
    reproduced is a sharp fall of the squared weights in clean-up: 0.18 a step, 0.40 before it; they
    fall fastest (0.9) from step 1,000 to 1,367, as the training loss comes to rest near 2e-7. It
    never jumps. The run of p = 43 does, twice, with a float32 loss (6e-4), not in float64 (5e-7).
Run: python analyses/grokking.py OUT
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import panels
import published
import torch
import torch.nn.functional as F
import typer
from modular import PUBLISHED, FullBatch, phases, trained_pairs
from published import Comparison, verdict
from torch import Tensor

import interp
from interp import TransformerConfig
from interp.circuits import fourier
from interp.tasks.modular_addition import ModularAddition

SOURCE = (
    "Nanda, Chan, Lieberum, Smith, Steinhardt 2023, "
    '"Progress measures for grokking via mechanistic interpretability"'
)


@dataclass(frozen=True)
class Size:
    """What is trained, and for how long."""

    p: int = 67
    fraction: float = 0.35
    d_model: int = 128
    d_mlp: int = 512
    steps: int = 8000
    seeds: int = 1
    per_octave: int = 12  # checkpoints


QUICK = Size(p=13, fraction=0.7, d_model=32, d_mlp=64, steps=500, seeds=1, per_octave=4)


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write grokking.json and grokking.html; the runs are kept in OUT/runs."""
    size = QUICK if quick else Size()
    runs = [grown(out, seed, size=size) for seed in range(size.seeds)]
    published.write(
        out,
        "grokking",
        compared(runs, size),
        source=SOURCE,
        numbers={"size": vars(size), "runs": runs},
        figure=_figure(runs[0], size),
        departures=departures(size),
    )


def departures(size: Size) -> list[str]:
    """Each setting that is not the paper's."""
    narrow = f"width {size.d_model} and {size.d_mlp} neurons in place of 128 and 512"
    return [
        f"p = {size.p} in place of 113, {size.fraction:.0%} of all pairs for training in place of "
        "30 %",
        *([] if size.d_model == 128 else [narrow]),
        f"{size.steps} full-batch steps in place of 50,000: the clean-up is over then",
        "AdamW decays matrices and embeddings, not the MLP's biases",
        "the unembedding starts as wide as the other matrices, 1/√width, and has no logit for =",
    ]


# --- a run -----------------------------------------------------------------------------------


def grown(out: Path, seed: int, *, size: Size) -> dict[str, Any]:
    """Train one model, and measure its checkpoints against the last one's key frequencies."""
    task = ModularAddition(p=size.p, fraction=size.fraction, split_seed=seed)
    run = interp.train(
        _config(size, seed),
        FullBatch(task),
        out=out / "runs" / f"seed {seed}",
        resume=True,
        seed=seed,
        steps=size.steps,
        batch_size=task.train_pairs,
        weight_decay=1.0,
        loss_precision="float64",
        evaluate_every=size.steps,
        checkpoints_per_octave=size.per_octave,
        progress=False,
        **PUBLISHED,
    )
    last = fourier.logits_of_pairs(run.model, size.p, equals=size.p)
    keys, trained_on = fourier.key_frequencies(last), trained_pairs(task)
    points = [_measured(run.load(step), keys, trained_on) for step in run.steps]
    curves = {name: [point[name] for point in points] for name in points[0]}
    return {
        "steps": run.steps,
        **curves,
        **phases(run.steps, curves, p=size.p),
        "keys": keys,
        "shares": fourier.shares(last)[[k - 1 for k in keys]],
        "embedding": fourier.embedding_norms(run.model.W_E[: size.p]),
        "accuracy": float((last.argmax(-1) == fourier.sums(size.p))[~trained_on].float().mean()),
        "full": _loss(last, torch.ones_like(trained_on)),
        "excluded_of_all_pairs": fourier.excluded_loss(last, keys),
        "excluded_each": [fourier.excluded_loss(last, [k], pairs=trained_on) for k in keys],
    }


def _config(size: Size, seed: int) -> TransformerConfig:
    return TransformerConfig(
        n_layers=1,
        n_heads=4,
        d_model=size.d_model,
        d_mlp=size.d_mlp,
        activation="relu",
        d_vocab=size.p + 1,
        d_vocab_out=size.p,
        n_ctx=3,
        normalization="none",
        bias=("mlp",),
        init_scale=1.0,
        init_seed=seed,
    )


@torch.no_grad()
def _measured(model: interp.Transformer, keys: list[int], trained_on: Tensor) -> dict[str, float]:
    p = len(trained_on)
    logits = fourier.logits_of_pairs(model, p, equals=p)
    return {
        "train": _loss(logits, trained_on),
        "test": _loss(logits, ~trained_on),
        "restricted": fourier.restricted_loss(logits, keys),
        "excluded": fourier.excluded_loss(logits, keys, pairs=trained_on),
        "weights": sum(float(w.double().square().sum()) for w in model.parameters()),
    }


def _loss(logits: Tensor, pairs: Tensor) -> float:
    return float(F.cross_entropy(logits[pairs], fourier.sums(len(logits))[pairs]))


# --- what is said of it ------------------------------------------------------------------------


def compared(runs: list[dict[str, Any]], size: Size) -> list[Comparison]:
    """Each finding beside ours, with the verdict that its rule gives."""
    grokked = [run for run in runs if _grokked(run)]
    how_many = f"{len(grokked)} of {len(runs)} seeds"
    rows = [
        Comparison(
            "Generalisation comes long after memorisation",
            "memorised by step 1,400, clean-up from 9,400 to 14,000",
            "; ".join(
                f"memorised by {run['memorised']}, clean-up from {run['clean_up_from']} to "
                f"{run['clean_up_to']}"
                for run in runs
            ),
            verdict(len(grokked) == len(runs), partly=bool(grokked)),
            f"in {how_many} clean-up starts after twice the time that memorising took",
        )
    ]
    return rows + ([_keys(grokked, size), _end(grokked), *_progress(grokked)] if grokked else [])


def _grokked(run: dict[str, Any]) -> bool:
    known = None not in (run["memorised"], run["clean_up_from"], run["clean_up_to"])
    return known and run["clean_up_from"] >= 2 * run["memorised"]


def _keys(runs: list[dict[str, Any]], size: Size) -> Comparison:
    explained = [float(run["shares"].sum()) for run in runs]
    few = all(len(run["keys"]) <= size.p // 8 for run in runs)
    return Comparison(
        "Key frequencies",
        "5 of 56: 14, 35, 41, 42, 52",
        "; ".join(
            f"{len(run['keys'])} of {size.p // 2}: {', '.join(map(str, sorted(run['keys'])))} "
            f"({share:.1%} of the logits' variance)"
            for run, share in zip(runs, explained, strict=True)
        ),
        verdict(few and min(explained) > 0.9, partly=min(explained) > 0.7),
        "which ones is chance",
    )


def _end(runs: list[dict[str, Any]]) -> Comparison:
    below = [run["restricted"][-1] < run["full"] for run in runs]
    above = [run["excluded_of_all_pairs"] > math.log(2) for run in runs]
    return Comparison(
        "Restricted loss at the end is below the full loss, and excluded loss is high",
        "full 3.5e-7, restricted 2.2e-9, excluded 9.0 (a trained model of p = 113, all pairs)",
        "; ".join(
            f"full {run['full']:.1e}, restricted {run['restricted'][-1]:.1e}, excluded "
            f"{run['excluded_of_all_pairs']:.1f}"
            for run in runs
        ),
        verdict(all(below) and all(above), partly=any(below) or any(above)),
    )


def _progress(runs: list[dict[str, Any]]) -> list[Comparison]:
    """What happens in circuit formation, while the test loss stays high, and in clean-up."""
    start = [_at(run, "memorised") for run in runs]
    turn = [_at(run, "clean_up_from") for run in runs]
    falls = [b["restricted"] < a["restricted"] / 2 for a, b in zip(start, turn, strict=True)]
    rises = [b["excluded"] > 2 * a["excluded"] for a, b in zip(start, turn, strict=True)]
    rates = [_weight_rates(run) for run in runs]
    return [
        Comparison(
            "Circuit formation: before the test loss falls",
            "restricted loss falls and excluded loss rises, gradually",
            "; ".join(
                f"restricted {a['restricted']:.2g} → {b['restricted']:.2g}, excluded "
                f"{a['excluded']:.2g} → {b['excluded']:.2g} ({_least(run)}), test {a['test']:.2g} "
                f"→ {b['test']:.2g}"
                for run, a, b in zip(runs, start, turn, strict=True)
            ),
            verdict(all(falls) and all(rises), partly=any(falls) or any(rises)),
            "from memorised to the start of clean-up, by a factor of 2 or more",
        ),
        Comparison(
            "Clean-up: the sum of squared weights",
            "falls sharply",
            "; ".join(f"{b:.2f} a step in clean-up, {a:.2f} before it" for a, b in rates),
            verdict(all(b > 2 * a for a, b in rates), partly=all(b > a for a, b in rates)),
            "fall a step, from memorised on; sharply: twice as fast",
        ),
    ]


def _at(run: dict[str, Any], phase: str) -> dict[str, float]:
    where = run["steps"].index(run[phase])
    names = ("train", "test", "restricted", "excluded", "weights")
    return {name: run[name][where] for name in names}


def _least(run: dict[str, Any]) -> str:
    """The least excluded loss, and when it is reached: memory is then most of what there is."""
    least = min(run["excluded"])
    return f"least {least:.2g}, at step {run['steps'][run['excluded'].index(least)]}"


def _weight_rates(run: dict[str, Any]) -> tuple[float, float]:
    """How much the squared weights fall a step in circuit formation, and in clean-up."""
    marks = ("memorised", "clean_up_from", "clean_up_to")
    weights = [_at(run, mark)["weights"] for mark in marks]
    steps = [run[mark] for mark in marks]
    before, during = ((weights[i] - weights[i + 1]) / (steps[i + 1] - steps[i]) for i in (0, 1))
    return before, during


def _figure(run: dict[str, Any], size: Size) -> Any:
    titles = ("Loss", "Progress measures", "Sum of squared weights", "The embedding at the end")
    made = panels.figure("What grows while the test loss still stands?", titles, height=680)
    shown = {"train": 0, "test": 0, "restricted": 1, "excluded": 1, "weights": 2}
    for style, (name, panel) in enumerate(shown.items()):
        made.add_trace(
            panels.line(run["steps"], run[name], name=name, style=style), **panels.place(panel)
        )
    numbers = list(range(1, size.p // 2 + 1))
    bars = panels.bar(numbers, run["embedding"].tolist(), name="length of a frequency")
    made.add_trace(bars, **panels.place(3))
    for panel in range(3):
        panels.axes(made, panel, x="step", y="nats" if panel < 2 else "squared length")
        span = {"low": run["memorised"], "high": run["clean_up_from"]}
        panels.shade(made, panel, **span, words="circuit formation")
    for panel in (0, 1):
        made.update_yaxes(type="log", exponentformat="power", **panels.place(panel))
    panels.axes(made, 3, x="frequency k", y="length")
    return made


if __name__ == "__main__":
    typer.run(main)
