"""Can a softmax head stay sharp as its sequence grows?

Question: A head that must find one item among n has to put its weight on it. With scores that span
    no more than Δ, no key of n can weigh more than e^Δ/(e^Δ + n − 1): does a trained head run into
    this, when, and does a lower temperature help?
Method: One head without positions is trained to name the class of the largest of 4 to 16 items,
    and read at 16 to 32,768. Of the row that asks: largest weight, entropy and the spread of its
    scores (`AttentionView`, the last row alone, so no pattern is held), and the bound that the
    spread allows. Scores depend on the tokens alone, so their spread is bounded at any length. A
    second model has its scores capped at ±3 in training too. Both once more with q·k multiplied by
    ln n / ln 16.
Finding: Three seeds. It cannot. Accuracy is 0.96 to 0.98 at 16 items and 0.12 to 0.14, chance, at
    32,768; the largest weight falls from 0.93 to 0.01, with a slope of −0.85 to −0.95 at the end;
    entropy rises from 0.09 to 0.75 of a uniform head's (not to 1: most items are far below). No row
    is over the bound, but of free scores it says nothing here: they span about 70, and e^70 is far
    more than any n. What fades is the winner's lead over a crowd that stands just below it. Where
    scores are capped at ±3 (they span 4) the bound bites, 0.6 at 16 and 0.005 at 32,768; weight is
    0.22 and 0.0001, slope −1, and the task was never solved (0.72). Scores times ln n / ln 16 all
    but repair it: 0.89 to 0.98 at 32,768, from a factor that fits nothing;
    behind a cap they do nothing (gain 0.01 or less).
Run: python analyses/dispersion.py OUT [--quick]
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from largest.reading import CLASSES, LONGEST, bound, read, trained
from published import Comparison, span, verdict, write

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    import interp

SOURCE = "Veličković et al. 2025, Softmax is not Enough (for Sharp Size Generalisation)"
DEPARTURES = (
    "Items are tokens of 32 levels and 8 classes, embedded; theirs are numbers and 10 classes that "
    "an MLP reads. One item is above all others.",
    "Read up to 32,768 items (theirs 16,384); 3 seeds, 1,500 steps of AdamW.",
    "Their adaptive temperature is a polynomial of the row's entropy, fitted; ours multiplies "
    "scores by ln n / ln 16, and fits nothing.",
)
CAP = 3.0  # of scores: they then span no more than 6
LENGTHS = tuple(2**k for k in range(4, 16))
SHOWN = ("right", "max_weight", "normalized_entropy", "spread")
Lengths = dict[int, dict[str, float]]


@dataclass(frozen=True)
class Kind:
    """Models of several seeds, as they are and sharpened.

    Attributes:
        plain: One a seed: by number of items, what was measured.
        sharpened: The same with q·k multiplied by ln n / ln 16.
    """

    plain: list[Lengths]
    sharpened: list[Lengths]

    def at(self, n: int, name: str) -> list[float]:
        """Something at one length, a number a seed."""
        return [run[n][name] for run in self.plain]


def main(out: Annotated[Path, typer.Argument(file_okay=False)], quick: bool = False) -> None:
    """Write dispersion.json and dispersion.html to a folder; a second call goes on."""
    seeds, steps, lengths = (1, 300, LENGTHS[:6]) if quick else (3, 1500, LENGTHS)
    found = {"free": Kind([], []), "capped": Kind([], [])}
    for kind, cap in zip(found.values(), (None, CAP), strict=True):
        for seed in range(seeds):
            model = trained(out / "dispersion", seed=seed, steps=steps, cap=cap)
            factor = {n: math.log(n) / math.log(LONGEST) for n in lengths}
            kind.plain.append({n: measured(model, n) for n in lengths})
            kind.sharpened.append({n: measured(model, n, sharpened=factor[n]) for n in lengths})
    write(
        out,
        "dispersion",
        compared(**found),
        source=SOURCE,
        departures=DEPARTURES,
        numbers={"seeds": seeds, "steps": steps, **{k: vars(v) for k, v in found.items()}},
        figure=_figure(**found),
    )


def measured(model: "interp.Transformer", n: int, *, sharpened: float = 1.0) -> dict[str, float]:
    """Means over sequences of n items: 512 of them, 64 beyond 4,096."""
    rows = read(model, n, sequences=512 if n <= 4096 else 64, sharpened=sharpened)
    most = bound(rows["spread"], n + 1)  # the token that asks is a key too
    means = {name: float(rows[name].mean()) for name in SHOWN}
    means |= {
        "bound": float(most.mean()),
        "over_the_bound": float((rows["max_weight"] - most).max()),
        "largest_spread": float(rows["spread"].max()),
    }
    return {name: float(f"{x:.4g}") for name, x in means.items()}


# --- what is said of it --------------------------------------------------------------------------


def compared(free: Kind, capped: Kind) -> list[Comparison]:
    """Each statement, with a verdict by rule."""
    short, long = min(free.plain[0]), max(free.plain[0])
    return [
        _bounded(free, capped, long),
        _fades(free, capped, short, long),
        _spreads(free, capped, short, long),
        _fails(free, capped, short, long),
        _helped(free, capped, long),
    ]


def _bounded(free: Kind, capped: Kind, long: int) -> Comparison:
    runs = [run for kind in (free, capped) for run in kind.plain + kind.sharpened]
    over = max(line["over_the_bound"] for run in runs for line in run.values())
    near = [
        weight / most
        for weight, most in zip(
            capped.at(long, "max_weight"), capped.at(long, "bound"), strict=True
        )
    ]
    return Comparison(
        "No weight is over e^Δ/(e^Δ + n − 1)",
        "a theorem",
        f"largest excess in any row {over:.1g}; with scores capped, Δ is "
        f"{span(capped.at(long, 'spread'))} and the weight at {long:,} items {span(near)} of "
        f"the bound",
        verdict(over <= 1e-5),
        f"free scores span {span(free.at(long, 'spread'))}, where the bound says nothing yet: "
        f"{span(free.at(long, 'bound'))}",
    )


def _fades(free: Kind, capped: Kind, short: int, long: int) -> Comparison:
    slopes = [[_slope(run) for run in kind.plain] for kind in (free, capped)]
    return Comparison(
        "The largest weight fades with length, in the end as 1/n",
        "all coefficients are of order 1/n",
        f"{span(free.at(short, 'max_weight'))} at {short} items, "
        f"{span(free.at(long, 'max_weight'))} at {long:,} (capped: "
        f"{span(capped.at(short, 'max_weight'))}, {span(capped.at(long, 'max_weight'))}); slope "
        f"of its log in log n over the last three doublings {span(slopes[0])} "
        f"(capped: {span(slopes[1])})",
        verdict(max(slopes[0] + slopes[1]) <= -0.8, partly=max(slopes[0] + slopes[1]) <= -0.4),
    )


def _spreads(free: Kind, capped: Kind, short: int, long: int) -> Comparison:
    name, ends = (
        "normalized_entropy",
        [kind.at(long, "normalized_entropy") for kind in (free, capped)],
    )
    grows = all(
        a < b
        for kind in (free, capped)
        for a, b in zip(kind.at(short, name), kind.at(long, name), strict=True)
    )
    return Comparison(
        "Entropy grows towards that of a uniform head",
        "dispersion",
        f"in shares of a uniform head's: {span(free.at(short, name))} at {short}, "
        f"{span(ends[0])} at {long:,} (capped: {span(capped.at(short, name))}, {span(ends[1])})",
        verdict(grows and min(ends[0] + ends[1]) >= 0.9, partly=grows),
    )


def _fails(free: Kind, capped: Kind, short: int, long: int) -> Comparison:
    chance = 1 / CLASSES
    start, end = free.at(short, "right"), free.at(long, "right")
    return Comparison(
        "The task fails where the weight is gone",
        "right in distribution, near chance at the longest",
        f"accuracy {span(start)} at {short}, {span(end)} at {long:,} (capped: "
        f"{span(capped.at(short, 'right'))}, {span(capped.at(long, 'right'))}; chance {chance})",
        verdict(
            min(start) >= 0.9 and max(end + capped.at(long, "right")) <= 2 * chance,
            partly=all(b < a - 0.2 for a, b in zip(start, end, strict=True)),
        ),
    )


def _helped(free: Kind, capped: Kind, long: int) -> Comparison:
    """A lower temperature, over the lengths that were not trained on."""
    gains = [_gains(kind) for kind in (free, capped)]
    ends = [[run[long]["right"] for run in kind.sharpened] for kind in (free, capped)]
    return Comparison(
        "A temperature that falls with length helps, and does not repair",
        "their adaptive temperature gains at every length, and accuracy still falls",
        f"mean gain in accuracy {span(gains[0])}, {span(ends[0])} at {long:,} items; where "
        f"scores are capped behind it {span(gains[1])}, {span(ends[1])}",
        verdict(
            min(gains[0]) > 0.02 and max(ends[0]) < 0.9,
            partly=min(gains[0]) > 0.02,
        ),
    )


def _gains(kind: Kind) -> list[float]:
    lengths = [n for n in kind.plain[0] if n > LONGEST]
    return [
        sum(b[n]["right"] - a[n]["right"] for n in lengths) / len(lengths)
        for a, b in zip(kind.plain, kind.sharpened, strict=True)
    ]


def _slope(run: Lengths) -> float:
    """Of log largest weight in log n, over the last three doublings."""
    first, last = sorted(run)[-4], max(run)
    fall = math.log(run[last]["max_weight"] / run[first]["max_weight"])
    return fall / math.log(last / first)


def _figure(free: Kind, capped: Kind) -> "Figure":
    from plotly.subplots import make_subplots

    from interp.plots.theme import DASHES, OKABE_ITO, template

    figure = make_subplots(1, 2, subplot_titles=("Largest weight", "Accuracy"))
    curves = (
        ("free scores", free.plain, OKABE_ITO[0], DASHES[0]),
        ("free, × ln n / ln 16", free.sharpened, OKABE_ITO[4], DASHES[3]),
        ("scores capped at 3", capped.plain, OKABE_ITO[5], DASHES[1]),
        ("capped, × ln n / ln 16", capped.sharpened, OKABE_ITO[1], DASHES[2]),
    )
    for name, runs, colour, dash in curves:
        for seed, run in enumerate(runs):
            for column, key in ((1, "max_weight"), (2, "right")):
                first = seed == 0 and column == 1
                how: dict[str, Any] = {"name": name, "legendgroup": name, "showlegend": first}
                how |= {"line": {"color": colour, "dash": dash, "width": 1.8}, "mode": "lines"}
                y = [line[key] for line in run.values()]
                figure.add_scatter(x=list(run), y=y, row=1, col=column, **how)
    run, black = capped.plain[0], {"color": OKABE_ITO[7], "dash": DASHES[6], "width": 1.8}
    y = [line["bound"] for line in run.values()]
    name = "bound by the spread of capped scores"
    figure.add_scatter(x=list(run), y=y, name=name, line=black, mode="lines", row=1, col=1)
    ticks = [16, 128, 1024, 8192, 32768]
    named = [f"{n:,}" for n in ticks]
    figure.update_xaxes(type="log", title_text="items", tickvals=ticks, ticktext=named)
    figure.update_yaxes(type="log", dtick=1, exponentformat="power", title_text="weight", col=1)
    figure.update_yaxes(range=[-0.02, 1.03], title_text="share that is right", row=1, col=2)
    figure.update_layout(
        template=template(),
        title="Can a softmax head stay sharp as its sequence grows?",
        legend={"orientation": "h", "y": -0.16},
        margin={"t": 90},
    )
    return figure


if __name__ == "__main__":
    typer.run(main)
