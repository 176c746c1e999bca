"""Do the induction heads that random repeats show do anything on real text?

Question: Heads are called induction heads by what they do on repeats of random tokens. Are they
    the heads that matter on real text where something repeats, do they copy, and is the use of
    context theirs?
Method: The two models of phase_change.py in which such heads form (same folder; trained if
    absent). On held-out source of Python's standard library, for each head: prefix-matching score
    on random common bytes repeated four times; copying score (eigenvalues); what cutting it (z to
    its mean at the position) costs, apart for bytes that induction foretells (the last three bytes
    came before, and the latest time the same byte followed) and for all others. Those that match
    prefixes, at least 0.2 or else the best, cut together, against as many heads drawn at random;
    the loss by position with and without them.
Finding: One of sixteen heads of two layers matches prefixes (0.51) and copies (0.55). Cut, it costs
    0.18 nats on the 28 % of bytes that induction foretells, 2.6 times as much as any other head of
    its layer, and 0.04 elsewhere, the least of all heads; 46 % of what the context helps goes with
    it. With one layer and smeared keys it is two heads (0.52 and 0.22), 1.01 nats on foretold
    bytes, 0.32 elsewhere, and 77 % of what the context helps. Negative: over all heads of the two
    layers the score ranks the wrong way round (rank correlation with that cost −0.61; 0.40 in the
    second layer, 0.62 with one layer): the first layer's heads match nothing and cost most, since
    all of the second layer reads them. A high score says what a head does, a low one does not say
    that it can be spared.
Run: python analyses/text_induction.py OUT [--quick]
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from published import Comparison, verdict, write
from text_models.measures import foretold, held_out, losses, repeats, window_score
from text_models.training import FULL, QUICK, Scale, trained

from interp import Transformer, ablation, probes
from interp.ablation.outcomes import head_name
from interp.circuits import copying_score
from interp.dynamics import loss_by_position
from interp.metrics import UNSCORED
from interp.tasks import Batch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SOURCE = "Olsson et al. 2022, In-context Learning and Induction Heads"
MODELS = ("two layers", "one layer, smeared keys")  # those in which such heads form
CONTEXT = 3  # bytes that have to have come before, for induction to foretell the next
MATCHES = 0.2  # prefix-matching score from which a head counts as found
DRAWS = 10
COLOURS = ("#0072B2", "#E69F00", "#009E73")


@dataclass(frozen=True)
class Found:
    """What the heads do, [layer head] flat; effects are ablated less clean, nats a byte.

    Attributes:
        heads: Names.
        matching: Prefix-matching score on random repeats.
        copying: Copying score.
        on_text: What cutting the head costs on all bytes.
        on_foretold: On those that induction foretells.
        on_others: On the rest.
        chosen: The heads that match.
        together: What cutting them together costs on foretold bytes, and on the others.
        random: Mean of as many heads drawn at random, likewise.
        icl: In-context-learning score between windows, as it is and with them cut.
        share: Bytes that induction foretells.
        by_position: Loss at each position, as it is and with them cut.
        correlation: Of matching with on_foretold, over heads (ranks).
        in_last_layer: The same over the heads of the last layer, whose output nothing else reads.
    """

    heads: list[str]
    matching: list[float]
    copying: list[float]
    on_text: list[float]
    on_foretold: list[float]
    on_others: list[float]
    chosen: list[str]
    together: tuple[float, float]
    random: tuple[float, float]
    icl: tuple[float, float]
    share: float
    by_position: tuple[list[float], list[float]]
    correlation: float
    in_last_layer: float


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write text_induction.json and text_induction.html to a folder."""
    scale = QUICK if quick else FULL
    found = {}
    for name in MODELS:
        run = trained(out / "text_runs", name, scale)
        batch = held_out(run.task, scale.examples)
        found[name] = measured(run.model, batch, repeats(run.task), scale)
    write(
        out,
        "text_induction",
        [row for name in MODELS for row in compared(name, found[name])],
        source=SOURCE,
        departures=departures(scale),
        numbers={"scale": asdict(scale), "context": CONTEXT, "models": found},
        figure=_figure(found),
    )


def measured(model: Transformer, batch: Batch, repeated: torch.Tensor, scale: Scale) -> Found:
    """All that is asked of the model."""
    told = torch.nn.functional.pad(foretold(batch.tokens, context=CONTEXT), (0, 1))
    asked = batch.targets != UNSCORED
    parts = [batch, only(batch, told), only(batch, ~told)]
    effects = [_effects(model, part, batch) for part in parts]
    matching = probes.head_statistics(model, repeated).induction
    chosen = matched(matching)
    cut, kept = cut_means(model, batch, chosen), losses(model, batch)
    groups = [_group(model, part, batch, chosen) for part in parts[1:]]
    windows = {"early": scale.early, "late": scale.late}
    scores, last = matching.flatten().tolist(), -matching.shape[1]
    return Found(
        heads=[head_name(at) for at in _all_heads(matching)],
        matching=scores,
        copying=copying_score(model).flatten().tolist(),
        on_text=effects[0],
        on_foretold=effects[1],
        on_others=effects[2],
        chosen=[head_name(at) for at in chosen],
        together=(groups[0][0], groups[1][0]),
        random=(groups[0][1], groups[1][1]),
        icl=(float(window_score(kept, **windows)), float(window_score(cut, **windows))),
        share=float((told & asked).sum() / asked.sum()),
        by_position=(_thinned(kept), _thinned(cut)),
        correlation=rank_correlation(scores, effects[1]),
        in_last_layer=rank_correlation(scores[last:], effects[1][last:]),
    )


def only(batch: Batch, where: torch.Tensor) -> Batch:
    """The batch, asked at these positions only."""
    return replace(batch, targets=batch.targets.masked_fill(~where, UNSCORED))


def matched(matching: torch.Tensor) -> list[tuple[int, int]]:
    """Heads that match prefixes, strongest first; the best one if none does."""
    order = sorted(_all_heads(matching), key=lambda at: -float(matching[at]))
    return [at for at in order if float(matching[at]) >= MATCHES] or order[:1]


def cut_means(model: Transformer, batch: Batch, heads: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Losses with these heads at their means, [batch pos]."""
    means = ablation.reference_mean(model, batch)
    logits = ablation.ablate(model, batch.tokens, heads=heads, kind="mean", reference=means)
    said = logits[:, :-1].log_softmax(-1)
    return -said.gather(2, batch.tokens[:, 1:, None])[..., 0]


def rank_correlation(x: list[float], y: list[float]) -> float:
    """Spearman's: 1 if both put the heads in the same order, −1 in the opposite one."""
    ranks = torch.tensor([x, y]).argsort(1).argsort(1).double()
    return float(torch.corrcoef(ranks)[0, 1])


def _all_heads(scores: torch.Tensor) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(len(scores)) for head in range(scores.shape[1])]


def _effects(model: Transformer, batch: Batch, reference: Batch) -> list[float]:
    found = ablation.sweep(model, batch, kind="mean", reference=reference)
    return found.effect.flatten().tolist()


def _group(
    model: Transformer, batch: Batch, reference: Batch, heads: Sequence[tuple[int, int]]
) -> tuple[float, float]:
    """What cutting them together costs, and what cutting as many others does on average."""
    how = {"random_sets": DRAWS, "generator": torch.Generator().manual_seed(0)}
    found = ablation.group(model, batch, heads=heads, kind="mean", reference=reference, **how)
    assert found.random is not None
    return float(found.together), float(found.random.mean())


def _thinned(lost: torch.Tensor, n: int = 8) -> list[float]:
    """Means over `n` positions at a time, but for what is left at the end."""
    at = loss_by_position(lost)
    return at[: len(at) // n * n].view(-1, n).mean(1).tolist()


# --- what is said of it --------------------------------------------------------------------------


def departures(scale: Scale) -> list[str]:
    """What is not as in the paper."""
    return [
        f"One and two layers: {scale.steps} steps on bytes of Python source, width "
        f"{scale.d_model}; theirs are language models of up to 13 billion weights.",
        "Heads are cut to their mean at the position; the paper's are zeroed with all patterns "
        "held.",
        "Copying is Elhage et al.'s eigenvalue score, not the paper's evaluator.",
        "One seed.",
    ]


def compared(model: str, found: Found) -> list[Comparison]:
    """Each statement about a model, with a verdict by rule."""
    model = model.capitalize()
    best = max(range(len(found.heads)), key=lambda n: found.matching[n])
    told, others = found.together
    lost = 1 - found.icl[1] / found.icl[0] if found.icl[0] else 0.0
    names, copies = ", ".join(found.chosen), found.copying[best]
    return [
        Comparison(
            f"{model}: heads that match prefixes on random tokens copy",
            "induction heads do both, by definition",
            f"best {found.heads[best]}: prefix-matching {found.matching[best]:.2f}, copying "
            f"{copies:.2f}",
            verdict(copies > 0.3 and found.matching[best] >= MATCHES, partly=copies > 0.3),
        ),
        Comparison(
            f"{model}: the score on random repeats foretells what a head is for on text",
            "heads with a high score carry most of in-context learning in small models",
            f"rank correlation over heads with the cost of cutting them where induction foretells "
            f"the byte: {found.correlation:.2f}; over those of the last layer "
            f"{found.in_last_layer:.2f}",
            verdict(found.correlation >= 0.5, partly=found.correlation > 0.2),
            f"{sum(x >= MATCHES for x in found.matching)} of {len(found.heads)} heads match at all",
        ),
        Comparison(
            f"{model}: without them, what is lost is what repeats",
            "not reported in this form",
            f"{names} cut: {told:+.3f} nats where induction foretells the byte "
            f"({found.share:.0%} of bytes; as many random heads {found.random[0]:+.3f}), "
            f"{others:+.3f} elsewhere ({found.random[1]:+.3f})",
            verdict(told > 2 * max(others, found.random[0]), partly=told > others),
        ),
        Comparison(
            f"{model}: without them, the context helps less",
            "most of the in-context-learning score of small attention-only models is theirs",
            f"score {found.icl[0]:.3f} nats, {found.icl[1]:.3f} with {names} cut: {lost:.0%} less",
            verdict(lost >= 0.5, partly=lost >= 0.1),
        ),
    ]


def _figure(found: dict[str, Found]) -> "Figure":
    from plotly.subplots import make_subplots

    titles = [x for m in MODELS for x in (f"{m}: cost of cutting a head", f"{m}: loss by position")]
    figure = make_subplots(
        rows=len(MODELS),
        cols=2,
        subplot_titles=titles,
        horizontal_spacing=0.12,
        vertical_spacing=0.14,
    )
    for row, name in enumerate(MODELS, 1):
        _draw(figure, found[name], row)
    last = len(MODELS)
    figure.update_xaxes(title_text="prefix-matching score on random repeats", row=last, col=1)
    figure.update_xaxes(title_text="position", row=last, col=2)
    figure.update_yaxes(title_text="ablated − clean, nats a byte", col=1)
    figure.update_yaxes(title_text="nats a byte", col=2)
    figure.update_layout(
        title="Do heads found on random repeats matter on real text?",
        template="plotly_white",
        height=420 * last,
        legend={"orientation": "h", "y": -0.1},
    )
    return figure


def _draw(figure: "Figure", found: Found, row: int) -> None:
    """A model's two pictures; the legend names them once."""
    from plotly import graph_objects as go

    costs = {"foretold bytes": found.on_foretold, "other bytes": found.on_others}
    looks = zip(costs.items(), ("circle", "diamond-open"), COLOURS, strict=False)
    for (name, y), symbol, colour in looks:
        dots = go.Scatter(
            x=found.matching,
            y=y,
            text=found.heads,
            name=f"cost on {name}",
            mode="markers",
            marker={"symbol": symbol, "color": colour, "size": 9},
            showlegend=row == 1,
        )
        figure.add_trace(dots, row=row, col=1)
    names = ("as it is", "those that match cut")
    for name, y, dash in zip(names, found.by_position, ("solid", "dash"), strict=True):
        line = {"dash": dash, "color": "#000000"}
        x = [4 + 8 * n for n in range(len(y))]
        curve = go.Scatter(x=x, y=y, name=name, line=line, showlegend=row == 1)
        figure.add_trace(curve, row=row, col=2)


if __name__ == "__main__":
    typer.run(main)
