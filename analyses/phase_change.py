"""Do induction heads form at once, and does in-context learning set in with them?

Question: In training, is there a short window in which heads that match prefixes appear and the
    context begins to help; with two layers, not with one, and with one whose keys are smeared?
Method: Attention-only models of the bytes of Python's standard library (files kept apart for
    testing), all with learned positions. Over checkpoints: the prefix-matching score of each head,
    on 25 random common bytes repeated four times, by `dynamics.over_checkpoints`; weight on the
    previous byte, on text; the in-context-learning score on held-out text, between the losses'
    indices 12 and 125 (of 128, counted from 0; they stand for tokens 50 and 500 of 512), and
    between windows around them. Even windows differ by what bytes happen to stand there: so the
    score is taken less that of the one-layer model at the same step, on the same text. Heads form
    from where the score passes a tenth of its rise for good to where it stays above nine tenths
    (`dynamics.formation`); context helps in the same window if the in-context score falls from
    before it to after it by more than twice its spread over the checkpoints before.
Finding: As published, but slowly. Two layers: one head of the second layer goes from 0.03 to 0.51,
    half-way at step 9,970 of 20,000 (window 5,312 to 11,585), after the first layer's
    previous-byte heads (0.5 by step 1,448). In that window the in-context score, less that of one
    layer, falls from −0.026 to −0.120 nats (spread before: 0.025). One layer with smeared keys has
    it sooner (0.52; steps 724 to 5,312; −0.026 to −0.069, spread 0.021). One layer without has
    neither, though it looks at the previous byte as much (0.63). The paper's fall is of 0.25 nats;
    no jump of the loss shows here. Negative: with rotary positions two layers formed no such head
    (highest score 0.03: width 64, 25 million bytes with MLPs; 9 million without; width 128, 7
    million). There the second layer's heads look at the bytes just before (0.5 to 0.65), not the
    first's (0.2 to 0.35), so nothing writes the previous byte where the second could match it. The
    score at two single indices is too noisy to tell.
Run: python analyses/phase_change.py OUT [--quick] [--only "one layer"]; with --only, one process
    trains one model, and the last one writes. What is trained is kept in OUT/text_runs.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from published import Comparison, verdict, write
from text_models.measures import held_out, losses_at, repeats, window_score
from text_models.training import ARCHITECTURES, FULL, QUICK, Scale, is_trained, trained

from interp.dynamics import Formation, formation, in_context_learning_score, over_checkpoints
from interp.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SOURCE = "Olsson et al. 2022, In-context Learning and Induction Heads"
FIRST = 100  # steps before are not looked at: there is little but the bytes' frequencies
FORMED = 0.2  # least rise of a head's score
SPREADS = 2  # how many of its spreads before the in-context score has to fall by
COLOURS = {"two layers": "#0072B2", "one layer": "#E69F00", "one layer, smeared keys": "#009E73"}
DASHES = {"two layers": "solid", "one layer": "dash", "one layer, smeared keys": "dot"}


@dataclass(frozen=True)
class Found:
    """A model through training, one entry a checkpoint.

    Attributes:
        steps: The checkpoints.
        loss: On held-out text, nats a byte.
        icl: In-context-learning score between windows, nats; negative: the context helps.
        icl_of_two: That between the two indices.
        matching: The highest prefix-matching score of a head.
        previous: The highest weight on the previous byte.
        forms: When the head that matches most in the end forms.
    """

    steps: list[int]
    loss: list[float]
    icl: list[float]
    icl_of_two: list[float]
    matching: list[float]
    previous: list[float]
    forms: Formation


def main(
    out: Annotated[Path, typer.Argument(file_okay=False)],
    quick: bool = False,
    only: str | None = None,
) -> None:
    """Write phase_change.json and phase_change.html to a folder."""
    scale, runs = (QUICK if quick else FULL), out / "text_runs"
    if only is not None:
        trained(runs, only, scale)
        if not all(is_trained(runs, name, scale) for name in ARCHITECTURES):
            return
    found = {name: measured(trained(runs, name, scale), scale) for name in ARCHITECTURES}
    write(
        out,
        "phase_change",
        compared(found),
        source=SOURCE,
        departures=departures(scale),
        numbers={"scale": asdict(scale), "models": found},
        figure=_figure(found),
    )


def measured(run: Run, scale: Scale) -> Found:
    """All that is followed through a run's checkpoints."""
    steps = [step for step in run.steps if step >= min(FIRST, scale.steps // 4)]
    batch = held_out(run.task, scale.examples)
    heads = over_checkpoints(
        run,
        batch.tokens[:16],
        repeats=repeats(run.task),
        statistics=("induction", "previous_token"),
        steps=steps,
    )
    assert heads.induction is not None
    assert heads.previous_token is not None
    matching = heads.induction.flatten(1)
    lost = losses_at(run, steps, scale.examples)
    icl = window_score(lost, early=scale.early, late=scale.late)
    two = [in_context_learning_score(x, early=scale.early, late=scale.late) for x in lost]
    return Found(
        steps=steps,
        loss=lost.mean((1, 2)).tolist(),
        icl=icl.tolist(),
        icl_of_two=two,
        matching=matching.amax(1).tolist(),
        previous=heads.previous_token.flatten(1).amax(1).tolist(),
        forms=formation(steps, matching[:, int(matching[-1].argmax())], least=FORMED),
    )


# --- what is said of it --------------------------------------------------------------------------


def departures(scale: Scale) -> list[str]:
    """What is not as in the paper."""
    return [
        f"Width {scale.d_model}, {scale.n_heads} heads, context {scale.length}, {scale.steps} "
        f"steps of {scale.batch_size} sequences "
        f"({scale.steps * scale.batch_size * scale.length / 1e6:.1f} million bytes); the paper: "
        "768, 12 heads, 8,192, some 10 billion tokens.",
        "Tokens are bytes of Python source, not subwords of web text and books: a byte says less "
        "than a token, and one matching byte foretells less.",
        f"Indices {scale.early} and {scale.late} of {scale.length} stand for tokens 50 and 500 of "
        "512; the curve is between windows around them.",
        "Learned positions, added to the embedding; the paper's are added to queries and keys "
        "only.",
        "One seed.",
    ]


def compared(found: dict[str, Found]) -> list[Comparison]:
    """Each statement, with a verdict by rule."""
    two, one, smeared = (found[name] for name in ARCHITECTURES)
    fell, fell_smeared = fall(two, one), fall(smeared, one)
    return [
        Comparison(
            "Two layers: heads that match prefixes form, in a short window",
            "all models of two layers or more, between 2.5 and 5 billion tokens of 10",
            _formed(two),
            verdict(two.forms.step is not None),
        ),
        Comparison(
            "In-context learning sets in in the same window",
            "the score falls from −0.15 to −0.4 nats while the heads form",
            _said(fell),
            verdict(fell is not None and fell.large),
        ),
        Comparison(
            "One layer shows neither",
            "no phase change, and less in-context learning than with two",
            f"{_formed(one)}; in-context score {one.icl[-1]:+.2f}, with two layers "
            f"{two.icl[-1]:+.2f} nats",
            verdict(
                one.forms.step is None and fell is not None and fell.large,
                partly=one.forms.step is None,
            ),
            "" if fell else "nor do two",
        ),
        Comparison(
            "One layer with smeared keys shows both",
            "a phase change, as with two layers",
            f"{_formed(smeared)}; {_said(fell_smeared)}",
            verdict(
                fell_smeared is not None and fell_smeared.large, partly=fell_smeared is not None
            ),
        ),
    ]


@dataclass(frozen=True)
class Fall:
    """How the in-context score, less the one-layer model's, changes where heads form; nats.

    Attributes:
        before: Its mean over the checkpoints up to the window.
        after: From the end of the window on.
        spread: Standard deviation over those before.
    """

    before: float
    after: float
    spread: float

    @property
    def large(self) -> bool:
        """Whether it falls by more than chance."""
        return self.before - self.after > SPREADS * self.spread


def fall(model: Found, one: Found) -> Fall | None:
    """The change from before the heads form to after; None if none does."""
    low, high = model.forms.low, model.forms.high
    if low is None or high is None:
        return None
    steps, less = torch.tensor(model.steps), torch.tensor(model.icl) - torch.tensor(one.icl)
    before, after = less[steps <= low], less[steps >= high]
    return Fall(float(before.mean()), float(after.mean()), float(before.std(correction=0)))


def _said(change: Fall | None) -> str:
    if change is None:
        return "no head forms"
    return (
        f"in-context score, less that of one layer, {change.before:+.3f} before and "
        f"{change.after:+.3f} after (spread before: {change.spread:.3f} nats)"
    )


def _when(change: Formation) -> str:
    if change.step is None:
        return f"no change (by {change.rise:.2f})"
    return f"from step {change.low:.0f} to {change.high:.0f}, half-way at {change.step:.0f}"


def _formed(model: Found) -> str:
    return f"best prefix-matching score {model.matching[-1]:.2f}, {_when(model.forms)}"


def _figure(found: dict[str, Found]) -> "Figure":
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    shown = {
        "matching": "prefix matching, best head",
        "icl": "in-context score less<br>one layer's, nats",
        "loss": "loss, nats a byte",
    }
    figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for row, (field, title) in enumerate(shown.items(), 1):
        for name, model in found.items():
            line = {"color": COLOURS[name], "dash": DASHES[name]}
            y = getattr(model, field)
            if field == "icl":
                y = [a - b for a, b in zip(y, found["one layer"].icl, strict=True)]
            trace = go.Scatter(x=model.steps, y=y, name=name, line=line, showlegend=row == 1)
            figure.add_trace(trace, row=row, col=1)
        figure.update_yaxes(title_text=title, row=row, col=1)
    highest = max(max(model.matching) for model in found.values())
    figure.update_yaxes(range=[0, 1.1 * max(FORMED, highest)], row=1, col=1)
    for name, model in found.items():
        if model.forms.low is not None and model.forms.high is not None:
            ends = (model.forms.low, model.forms.high)
            figure.add_vrect(*ends, fillcolor=COLOURS[name], opacity=0.15, line_width=0)
    figure.update_xaxes(type="log", title_text="step (log scale)", row=len(shown), col=1)
    figure.update_xaxes(type="log")
    figure.update_layout(
        title="Do induction heads form when context begins to help? (shaded: heads form)",
        template="plotly_white",
        height=700,
        legend={"orientation": "h", "y": 1.06},
    )
    return figure


if __name__ == "__main__":
    typer.run(main)
