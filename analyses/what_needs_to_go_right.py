"""What needs to go right for an induction head?

Question: Induction needs a head that reads the previous token, one that matches, and one that
    copies. Which of these makes the phase change wait, and what are several heads for?
Method: Two attention-only layers of four heads on repeats of random tokens. In each run something
    is held through all of training: one head of the first layer at the previous token's pattern;
    one of the second at the pattern of a perfect induction head (match), so that only copying is
    left to learn; a layer's patterns at uniform, so that its part cannot be learned; all heads of
    a layer but one at 0. The phase change is where held-out accuracy (withheld periods) passes
    half of its way, on a line between measurements. At the end, in the runs where nothing is held,
    every subset of a layer's heads is cut to 0.
Finding: Three seeds, 600 steps. Given the previous token, accuracy passes half at step 234 to 247,
    after 258 to 289 where nothing is held: earlier, by little. Given the match, at step 30, with no
    plateau: nearly all of the waiting is for the match. Where one of the two cannot be learned
    there is no phase change in 600 steps (accuracy 0.29 to 0.31 without a previous token, by
    another way, and 0.07 to 0.08 without a match). One head in the second layer waits much longer
    (step 510 in a seed, not by 600 in two). The four heads of the second layer add up and back each
    other up: any single cut costs 1 % of what all cost, two that stay leave 0.2 nats of 6.5.
    Negative: one head in the first layer is faster than four (170 to 187), and the first layer's
    four do not back each other up (the costliest cut has 0.32 to 0.46 of the cost of all). Tried
    before: with 32 tokens and periods from 6 to 24 one seed solved the task without any induction
    head (accuracy 1.00, best induction score 0.03).
Run: python analyses/what_needs_to_go_right.py OUT [--quick]
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from published import Comparison, Verdict, span, verdict, write
from subcircuits.training import CONDITIONS, HEADS, Setting, kept, trained

import interp
from interp import dynamics

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SOURCE = "Singh et al. 2024, What needs to go right for an induction head?"
Line = dict[str, float]
Runs = dict[str, list[list[Line]]]


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write what_needs_to_go_right.json and .html to a folder; a second call goes on."""
    setting = Setting(d_model=32, steps=30, every=15, seeds=1) if quick else Setting()
    runs: Runs = {name: [] for name in CONDITIONS}
    subsets = []
    for seed in range(setting.seeds):
        for name, clamps in CONDITIONS.items():
            run = trained(out, setting, name=name, clamps=clamps, seed=seed)
            runs[name].append(_curve(run))
            if not clamps:
                subsets.append(kept(run))
    write(
        out,
        "what_needs_to_go_right",
        compared(runs, subsets),
        source=SOURCE,
        departures=setting.departures(),
        numbers={
            "setting": vars(setting),
            "runs": {name: [_columns(run) for run in each] for name, each in runs.items()},
            "heads of the runs not held": subsets,
        },
        figure=_figure(runs, subsets),
    )


def _curve(run: interp.Run) -> list[Line]:
    names = ("step", "held_out_loss", "held_out_accuracy")
    lines = [
        {name: line[name] for name in names} | {"induction": max(line["max_induction"])}
        for line in run.metrics
    ]
    return [{name: round(x, 4) for name, x in line.items()} for line in lines]


def _columns(run: list[Line]) -> dict[str, list[float]]:
    return {name: [round(line[name], 3) for line in run] for name in run[0]}


# --- what is said of it --------------------------------------------------------------------------


FEWER = {
    "second": "more heads than are needed make learning faster",
    "first": "previous-token heads, too, are several and add up",
}


def compared(runs: Runs, subsets: list[dict[str, Any]]) -> list[Comparison]:
    """Each statement, with a verdict by rule; seeds are compared with themselves."""
    steps = {name: [_half_way(run) for run in each] for name, each in runs.items()}
    plain = steps["nothing held"]
    ends = {name: [run[-1]["held_out_accuracy"] for run in each] for name, each in runs.items()}
    return [
        Comparison(
            "With the previous token given, the phase change comes earlier",
            "clamping a part that must be learned brings it forward",
            _against(steps, "previous token given"),
            _earlier(steps["previous token given"], plain),
        ),
        Comparison(
            "With the match given, only copying is left, and there is no plateau",
            "parts alone are learned fast and smoothly; together they make the change sudden",
            _against(steps, "match given"),
            _earlier(steps["match given"], steps["previous token given"]),
        ),
        _without_a_part(runs, ends),
        *(
            Comparison(
                f"With one head in the {place} layer, it comes later",
                stated,
                f"{_against(steps, f'one head in the {place} layer')}; accuracy in the end "
                f"{span(ends[f'one head in the {place} layer'], '.2f')}",
                _earlier(plain, steps[f"one head in the {place} layer"]),
            )
            for place, stated in FEWER.items()
        ),
        _additive(subsets, 1, "induction heads"),
        _additive(subsets, 0, "heads of the first layer"),
    ]


def _without_a_part(runs: Runs, ends: dict[str, list[float]]) -> Comparison:
    induction = [run[-1]["induction"] for run in runs["nothing held"]]
    prevented = ("previous token prevented", "match prevented")
    return Comparison(
        "Where a part cannot be learned, there is no phase change",
        "the parts need each other",
        "; ".join(f"{name}: accuracy {span(ends[name], '.2f')}" for name in prevented)
        + f"; nothing held: {span(ends['nothing held'], '.2f')}, by induction heads (score "
        f"{span(induction, '.2f')})",
        verdict(
            max(max(ends[name]) for name in prevented) <= 0.5 * min(ends["nothing held"]),
            partly=any(max(ends[n]) <= 0.5 * min(ends["nothing held"]) for n in prevented),
        ),
    )


def _earlier(steps: list[float], others: list[float]) -> Verdict:
    pairs = [a < b for a, b in zip(steps, others, strict=True)]
    return verdict(all(pairs), partly=sum(pairs) > len(pairs) / 2)


def _against(steps: dict[str, list[float]], name: str) -> str:
    return (
        f"half of the way at step {', '.join(_step(x) for x in steps[name])}; nothing held: "
        f"{', '.join(_step(x) for x in steps['nothing held'])} (a number a seed)"
    )


def _additive(subsets: list[dict[str, Any]], layer: int, what: str) -> Comparison:
    """Redundant: one cut costs under a tenth of all. Additive: each left helps, on average."""
    means = [[_mean(found[f"layer {layer}"][n]) for n in range(HEADS)] for found in subsets]
    each = [(*row, found["loss"]) for row, found in zip(means, subsets, strict=True)]
    learned = max(row[-1] for row in each) <= 0.5
    falls = learned and all(a > b for row in each for a, b in zip(row, row[1:], strict=False))
    shares = [
        (max(found[f"layer {layer}"][HEADS - 1]) - found["loss"]) / (row[0] - row[-1])
        for found, row in zip(subsets, each, strict=True)
    ]
    curve = ", ".join(f"{n}: {span([row[n] for row in each], '.2f')}" for n in range(HEADS + 1))
    return Comparison(
        f"The {what} add up, and back each other up",
        "additive and redundant: any one head can be cut, few alone suffice",
        f"loss (nats) with so many left: {curve}; the costliest single cut has "
        f"{span(shares, '.2f')} of the cost of all",
        verdict(falls and max(shares) <= 0.1, partly=falls),
    )


def _half_way(run: list[Line]) -> float:
    """Where accuracy passes half of its way; infinite where it does not rise."""
    at = dynamics.formation([int(x["step"]) for x in run], [x["held_out_accuracy"] for x in run])
    return float("inf") if at.step is None else at.step


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _step(step: float) -> str:
    return "none" if step == float("inf") else f"{step:.0f}"


def _figure(runs: Runs, subsets: list[dict[str, Any]]) -> "Figure":
    from plotly.subplots import make_subplots

    from interp.plots.theme import DASHES, OKABE_ITO, template

    titles = ("Held-out accuracy (a line a seed)", "Loss by how many heads are left")
    figure = make_subplots(1, 2, column_widths=[0.64, 0.36], subplot_titles=titles)
    colours = (*OKABE_ITO[:6], OKABE_ITO[7])
    for (name, each), colour, dash in zip(runs.items(), colours, DASHES, strict=False):
        for seed, run in enumerate(each):
            x, y = ([line[key] for line in run] for key in ("step", "held_out_accuracy"))
            line = {"color": colour, "dash": dash, "width": 1.8}
            how = {"name": name, "legendgroup": name, "showlegend": seed == 0}
            figure.add_scatter(x=x, y=y, mode="lines", line=line, row=1, col=1, **how)
    for layer, colour, dash in ((1, OKABE_ITO[5], "solid"), (0, OKABE_ITO[0], "dash")):
        for seed, found in enumerate(subsets):
            y = [_mean(found[f"layer {layer}"][n]) for n in range(HEADS)] + [found["loss"]]
            name = "second layer's heads cut" if layer else "first layer's heads cut"
            line = {"color": colour, "dash": dash, "width": 1.8}
            how = {"name": name, "legendgroup": name, "showlegend": seed == 0, "line": line}
            x = list(range(HEADS + 1))
            figure.add_scatter(x=x, y=y, mode="lines+markers", row=1, col=2, **how)
    figure.update_xaxes(title_text="step", row=1, col=1)
    figure.update_yaxes(title_text="accuracy", range=[-0.02, 1.03], row=1, col=1)
    figure.update_xaxes(title_text="heads of the layer that are left", dtick=1, row=1, col=2)
    figure.update_yaxes(title_text="loss, nats (mean over subsets)", row=1, col=2)
    figure.update_layout(
        template=template(),
        title="What needs to go right for an induction head?",
        legend={"orientation": "h", "y": -0.16},
        margin={"t": 90},
    )
    return figure


if __name__ == "__main__":
    typer.run(main)
