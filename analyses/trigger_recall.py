"""In which order are the associative memories of an induction circuit learned?

Question: A trigger is followed by another output in each sequence; elsewhere bigrams rule. A
    transformer recalls the output by three memories: W_K^0 (position t: the one before), W_K^1 (a
    token: itself, as the first layer wrote it) and W_O^1 (a token: its own logit). Which is learned
    first?
Method: Two layers of one head without norms; W_Q = I; embeddings, positions, unembedding and
    values are random and stay so; W_K^0, W_K^1 and W_O^1 are trained by SGD on `trigger_bigrams`,
    with the loss on outputs from a trigger's second occurrence on. Recall is the share of
    positions or tokens whose memory has its largest answer at the right place, without a mask. A
    control whose W_K^0 stays as it was drawn.
Finding: Three seeds, 1,000 steps. W_O^1 and W_K^1 are learned first and in full (every token that
    can be an output, 1.00; all five triggers, 1.00), W_K^0 last, as accuracy on the outputs jumps
    (half of its way at step 107 to 163, of the others' by 49). Which of the first two leads is not
    theirs: W_K^1 passes half at step 20 to 45, W_O^1 at 35 to 49, but five triggers move W_K^1's
    recall in fifths. W_K^0 stops at 0.51 to 0.62 of all positions, 0.78 to 0.88 of the first half:
    late positions are seldom needed. Accuracy ends at 0.91 to 0.96, loss at 0.24 to 0.47 nats. With
    W_K^0 as it was drawn accuracy stays at 0.27.
Run: python analyses/trigger_recall.py OUT [--quick]
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from published import Comparison, span, verdict, write
from triggers.training import MEMORIES, Setting, followed, model_of

from interp import dynamics
from interp.results import plain, write_atomic

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SOURCE = "Bietti et al. 2023, Birth of a Transformer: A Memory Viewpoint"


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write trigger_recall.json and trigger_recall.html to a folder; a second call goes on."""
    setting = Setting(64, 32, 32, steps=60, every=20, seeds=1) if quick else Setting()
    runs = [_kept(out, setting, seed) for seed in range(setting.seeds)]
    control = _kept(out, setting, 0, frozen=True)
    write(
        out,
        "trigger_recall",
        compared(runs, control),
        source=SOURCE,
        departures=setting.departures(),
        numbers={"setting": asdict(setting), "runs": runs, "first layer's keys frozen": control},
        figure=_figure(runs, control),
    )


def _kept(out: Path, setting: Setting, seed: int, *, frozen: bool = False) -> list[dict[str, Any]]:
    """A run's measurements, read if they are there."""
    name = f"d{setting.d_model}-{setting.steps}-seed{seed}{'-frozen' if frozen else ''}.json"
    path = out / "trigger_recall" / name
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = followed(model_of(setting, seed), setting, seed=seed, frozen=frozen)
        found = [asdict(line) for line in lines]
        write_atomic(path, json.dumps(plain(found)))
    return json.loads(path.read_text())


# --- what is said of it --------------------------------------------------------------------------


def compared(runs: list[list[dict[str, Any]]], control: list[dict[str, Any]]) -> list[Comparison]:
    """Each statement, with a verdict by rule."""
    halves = [_half_way(run) for run in runs]
    orders = [[name for name, _ in sorted(half.items(), key=lambda x: x[1])] for half in halves]
    last, steps = [run[-1] for run in runs], {n: [h[n] for h in halves] for n in MEMORIES}
    ends, stuck = [x["accuracy"] for x in last], control[-1]["accuracy"]
    at = ", ".join(f"{n} at step {span(steps[n], '.0f')}" for n in MEMORIES)
    return [
        _learned(last),
        Comparison(
            "Learned from the output back: W_O^1, then W_K^1, then W_K^0",
            "W_O, W_K of the second layer, W_K of the first",
            f"half of its way: {at}",
            verdict(
                all(order == list(MEMORIES) for order in orders)
                and max(steps["W_K^0"]) < float("inf"),
                partly=all(order[-1] == "W_K^0" for order in orders),
            ),
            "the recall of five triggers moves in fifths, so the first two are close to a tie",
        ),
        Comparison(
            "The outputs are then known from the context",
            "in-context accuracy near 1",
            f"accuracy {span(ends, '.2f')}, loss {span([x['loss'] for x in last], '.2f')} nats",
            verdict(min(ends) >= 0.95, partly=min(ends) >= 0.8),
        ),
        Comparison(
            "Without the first layer's memory there is no recall",
            "the two layers work together (their theory; the control is ours)",
            f"W_K^0 frozen: accuracy {stuck:.2f}",
            verdict(stuck <= 0.5 * min(ends)),
        ),
    ]


def _learned(last: list[dict[str, Any]]) -> Comparison:
    learned = [min(x["recall"]["W_K^1"], x["recall_of_outputs"]) for x in last]
    return Comparison(
        "All three memories are learned",
        "recalls near 1; W_K^0 lower at late positions",
        f"W_O^1 {span([x['recall']['W_O^1'] for x in last], '.2f')} "
        f"({span([x['recall_of_outputs'] for x in last], '.2f')} of tokens that can be outputs), "
        f"W_K^1 {span([x['recall']['W_K^1'] for x in last], '.2f')}, "
        f"W_K^0 {span([x['recall']['W_K^0'] for x in last], '.2f')} "
        f"({span([x['recall_early'] for x in last], '.2f')} in the first half)",
        verdict(
            min(learned) >= 0.95 and min(x["recall_early"] for x in last) >= 0.9,
            partly=min(learned) >= 0.95,
        ),
    )


def _half_way(run: list[dict[str, Any]]) -> dict[str, float]:
    """The step at which each recall passes half of its way; infinite where it does not rise."""
    steps = [line["step"] for line in run]
    found = {}
    for name in MEMORIES:
        step = dynamics.formation(steps, [line["recall"][name] for line in run]).step
        found[name] = float("inf") if step is None else step
    return found


def _figure(runs: list[list[dict[str, Any]]], control: list[dict[str, Any]]) -> "Figure":
    from plotly import graph_objects as go

    from interp.plots.theme import DASHES, OKABE_ITO, template

    figure = go.Figure()
    lines = {f"recall: {words}": name for name, words in MEMORIES.items()}
    for (words, name), colour, dash in zip(lines.items(), OKABE_ITO, DASHES, strict=False):
        for number, run in enumerate(runs):
            y = [line["recall"][name] for line in run]
            _line(figure, run, y, words, colour=colour, dash=dash, first=number == 0)
    for number, run in enumerate(runs):
        y = [line["accuracy"] for line in run]
        _line(
            figure,
            run,
            y,
            "accuracy on outputs",
            colour=OKABE_ITO[7],
            dash="solid",
            first=number == 0,
        )
    y = [line["accuracy"] for line in control]
    _line(
        figure,
        control,
        y,
        "accuracy, W_K^0 frozen",
        colour=OKABE_ITO[5],
        dash="longdashdot",
        first=True,
    )
    figure.update_layout(
        template=template(),
        title="In which order are the memories of an induction circuit learned?",
        xaxis_title="step",
        yaxis={"title": "share that is right (a line a seed)", "range": [-0.02, 1.03]},
        legend={"orientation": "h", "y": -0.18},
    )
    return figure


def _line(
    figure: "Figure",
    run: list[dict[str, Any]],
    y: list[float],
    name: str,
    *,
    colour: str,
    dash: str,
    first: bool,
) -> None:
    figure.add_scatter(
        x=[line["step"] for line in run],
        y=y,
        name=name,
        legendgroup=name,
        showlegend=first,
        line={"color": colour, "dash": dash, "width": 1.7},
        mode="lines",
    )


if __name__ == "__main__":
    typer.run(main)
