"""When does a head need an attention sink?

Question: The output is the mean of all tokens so far at a trigger, and nothing elsewhere. Softmax
    must put its weight somewhere: does a head that solves this park it on the first token, does it
    have to, and does it still where weights need not sum to 1?
Method: Tokens are BOS, 64 others with fixed random contents of 8 numbers, and one trigger a
    sequence, at a random place. A model reads contents and three marks (BOS, trigger, other), and
    writes 8 numbers to a part of the residual stream that was 0: mean squared error, given as a
    share of what an output that is always 0 has. Trained alike with softmax, ReLU in its place
    (weights as they come, no sum), linear attention, and softmax whose first key is hidden, without
    and with a sink logit that takes its place. Sinks by `probes.head_statistics` on rows before
    the trigger, after it (where the trigger, too, may be parked on) and at it. At the end the first
    key is hidden from all rows but the trigger's: what the sink was for.
Finding: All of it came out, in five of five seeds. Softmax solves the task (error 4e-5 of that of
    an output that is always 0) with a weight of 0.998 on BOS before the trigger, and 0.001 at it;
    ReLU solves it as well (1e-5 or less) with 2e-5 or less. Without the first key softmax is stuck
    at 0.89, and a sink logit in its place sets it free (8e-5): what is forced is somewhere empty to
    attend to, not BOS. Linear attention, whose weights sum to 1, parks too (0.99). Two layers of
    two heads: the strongest head has 0.95 to 1.00 under softmax, at most 0.04 under ReLU. Cut
    afterwards, softmax's sink costs 11 to 12 times the error of saying nothing; it was not idle.
    BOS's value writes 1e-4 of what others' do. Negative: a sink logit does not prevent a sink. With
    both at hand the models still put 0.97 to 0.98 on BOS; only then does cutting it cost little
    (0.02 to 0.05). And after the trigger weight is shared with the trigger, whose value is empty
    too (0.68 to 0.91 on BOS).
Run: python analyses/sinks_by_need.py OUT [--quick]
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from published import Comparison, span, verdict, write
from sinks.averaging import Found, measured
from sinks.kinds import KINDS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SOURCE = (
    "Ran-Milo 2026, Attention Sinks Are Provably Necessary in Softmax Transformers; Guo et al. "
    "2024, Active-Dormant Attention Heads: Mechanistically Demystifying Extreme-Token Phenomena"
)
DEPARTURES = (
    "Sizes and training are ours: 16 tokens, contents of 8 numbers from 64 fixed tokens, 1,500 "
    "steps of AdamW on 64 sequences; the theorem asks for contents from a continuum.",
    "Every token also carries 1 / (number of tokens to average): without it, weights that do not "
    "sum to 1 could not make a mean. All models get it.",
    "Guo et al.'s statements (dormant heads, drained values, ReLU) are looked at on this task, not "
    "on their Bigram-Backcopy task or on pretrained models.",
)
SOLVED, FAILED = 0.01, 0.5  # shares of the error of an output that is always 0


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write sinks_by_need.json and sinks_by_need.html to a folder."""
    seeds, steps = (1, 100) if quick else (5, 1500)
    found = {
        name: [measured(kind, seed, steps) for seed in range(seeds)] for name, kind in KINDS.items()
    }
    write(
        out,
        "sinks_by_need",
        compared(found),
        source=SOURCE,
        departures=DEPARTURES,
        numbers={
            "seeds": seeds,
            "steps": steps,
            "kinds": {name: [asdict(run) for run in runs] for name, runs in found.items()},
        },
        figure=_figure(found),
    )


# --- what is said of it --------------------------------------------------------------------------


def compared(found: dict[str, list[Found]]) -> list[Comparison]:
    """Each statement, with a verdict by rule: "solved" is an error under 1 %, in every seed."""
    soft, relu = found["softmax"], found["ReLU"]
    deep, deep_relu = found["softmax, 2 layers × 2 heads"], found["ReLU, 2 layers × 2 heads"]
    hidden, logit = found["softmax, first key hidden"], found["the same, with a sink logit"]
    return [
        Comparison(
            "Softmax that solves the task has a sink",
            "a theorem: where nothing is asked, the weight on BOS must be near 1",
            f"error {_span(soft, 'error')}, weight on BOS {_span(soft, 'sink')} before the "
            f"trigger, {_span(soft, 'sink_after')} after it",
            verdict(_solved(soft) and min(_all(soft, "sink")) >= 0.9),
            "after the trigger, weight may also rest on it: its value is empty too",
        ),
        Comparison(
            "ReLU attention solves it without",
            "no sink",
            f"error {_span(relu, 'error')}, weight on BOS {_span(relu, 'sink')}",
            verdict(_solved(relu) and max(_all(relu, "sink")) <= 0.01),
        ),
        Comparison(
            "With more layers and heads, some head has a sink; under ReLU none",
            "strong sinks under softmax, none under ReLU",
            f"strongest head: softmax {_span(deep, 'sink')} (error {_span(deep, 'error')}), "
            f"ReLU {_span(deep_relu, 'sink')} (error {_span(deep_relu, 'error')})",
            verdict(
                _solved(deep + deep_relu)
                and min(_all(deep, "sink")) >= 0.5
                and max(_all(deep_relu, "sink")) <= 0.05
            ),
        ),
        Comparison(
            "It is the sum to 1 that forces it: somewhere empty must be left to attend to",
            "normalisation is the driver",
            f"first key hidden: error {_span(hidden, 'error')}; hidden, but with a sink logit: "
            f"{_span(logit, 'error')}",
            verdict(min(_all(hidden, "error")) >= FAILED and _solved(logit)),
        ),
        *_of_the_sink(soft, relu),
    ]


def _of_the_sink(soft: list[Found], relu: list[Found]) -> list[Comparison]:
    return [
        Comparison(
            "Cut, the sink costs what it was for",
            "not reported",
            f"first key hidden after training from rows where nothing is asked: error "
            f"{_span(soft, 'error_cut')} under softmax, {_span(relu, 'error_cut')} under ReLU",
            verdict(
                min(_all(soft, "error_cut")) >= FAILED and max(_all(relu, "error_cut")) <= SOLVED
            ),
        ),
        Comparison(
            "Heads are active at triggers and dormant elsewhere; the sink's value is drained",
            "Guo et al.: both, in their task and in pretrained models",
            f"weight on BOS at the trigger {_span(soft, 'sink_at_trigger')}; its value writes "
            f"{_span(soft, 'drained')} of what the others' do",
            verdict(
                max(_all(soft, "sink_at_trigger")) <= 0.05 and max(_all(soft, "drained")) <= 0.05
            ),
        ),
    ]


def _all(runs: list[Found], name: str) -> list[float]:
    return [getattr(run, name) for run in runs]


def _solved(runs: list[Found]) -> bool:
    return max(_all(runs, "error")) <= SOLVED


def _span(runs: list[Found], name: str) -> str:
    return span(_all(runs, name))


def _figure(found: dict[str, list[Found]]) -> "Figure":
    from plotly.subplots import make_subplots

    from interp.plots.theme import MARKERS, OKABE_ITO, template

    figure = make_subplots(
        1,
        2,
        shared_yaxes=True,
        horizontal_spacing=0.06,
        subplot_titles=(
            "Weight on the first key",
            "Error (1: the output is always 0)",
        ),
    )
    shown = (
        ("sink", "in rows before the trigger", 1),
        ("sink_at_trigger", "at the trigger", 1),
        ("error", "as trained", 2),
        ("error_cut", "first key cut from rows that are asked nothing", 2),
    )
    for (name, words, column), colour, marker in zip(shown, OKABE_ITO, MARKERS, strict=False):
        x, y = zip(
            *((getattr(r, name), kind) for kind, runs in found.items() for r in runs), strict=True
        )
        dots = {"color": colour, "symbol": marker, "size": 9, "opacity": 0.75}
        figure.add_scatter(x=x, y=y, mode="markers", name=words, marker=dots, row=1, col=column)
    figure.update_yaxes(autorange="reversed", title_text="attention", row=1, col=1)
    figure.update_xaxes(range=[-0.03, 1.03], title_text="weight, strongest head", row=1, col=1)
    figure.update_xaxes(
        type="log", exponentformat="power", title_text="share of the error", row=1, col=2
    )
    figure.update_layout(
        template=template(),
        title="When does a head need an attention sink?",
        legend={"orientation": "h", "y": -0.15},
        margin={"t": 90},
    )
    return figure


if __name__ == "__main__":
    typer.run(main)
