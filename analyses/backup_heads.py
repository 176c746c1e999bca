"""Do heads back each other up, and can pairs of them tell?

Question: Which pairs of heads back each other up, which need each other, and does the sum of
    single and pair effects foretell what a whole layer of them does?
Method: Every pair of heads cut together on repeated random tokens (z to its mean at the position
    over others), and its interaction: joint effect less both alone, with bootstrap intervals.
    Beside it each layer cut whole, against the sum of its heads alone, and that sum with all its
    pairs' interactions.
Finding: In the demo's model (seeds 0 to 2) they do, and pairs tell it of one layer and not of the
    other. The first layer's previous-token heads back each other up in pairs: in seed 0, L0H0 and
    L0H2 cost 0.89 and 0.63 nats alone, 5.9 together (interaction 4.4, 95% interval 4.2 to 4.6;
    the strongest pair of seeds 1 and 2: 3.8 and 3.4). The second layer's four induction heads
    cost 0.02 nats as the sum of singles and 0.40 to 0.42 with all their pairs, but 6.1 to 6.3
    when cut together: each of them is backed up by the three others at once, which no pair
    shows. In the first layer the sum with pairs is too large instead (11.3 to 12.6 against 7.4
    to 8.3 nats). So sums of single and pair effects foretell neither; cut the group.
Run: python analyses/backup_heads.py OUT --run runs/demo
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from interp import ablation, plots
from interp.ablation import Pairwise
from interp.ablation.outcomes import head_name
from interp.report import Subject, subject_of
from interp.results import plain, write_atomic

STRONGEST = 12


def main(
    out: Annotated[Path, typer.Argument(file_okay=False)], run: Path = Path("runs/demo")
) -> None:
    """Write backup_heads.json and backup_heads.html to a folder."""
    subject = subject_of(run)
    if subject.repeats is None:
        raise ValueError(f"{run}: the model has no room for repeats, which this is about")
    pairs = ablation.pairwise(
        subject.model, subject.repeats, kind="mean", reference=subject.repeats_reference
    )
    found = {
        "run": run,
        "step": subject.step,
        "sequences": len(subject.repeats),
        "clean": pairs.clean,
        "effect": pairs.effect,
        "interaction": pairs.interaction,
        "strongest": _strongest(pairs),
        "layers": [_layer(subject, pairs, n) for n in range(len(pairs.effect))],
    }
    write_atomic(out / "backup_heads.json", json.dumps(plain(found), indent=1) + "\n")
    write_atomic(out / "backup_heads.html", plots.to_html(_figure(pairs)))


def _strongest(pairs: Pairwise) -> list[dict[str, Any]]:
    low, high = pairs.interval()
    return [
        {
            "heads": [head_name(a), head_name(b)],
            "interaction": value,
            "interval": [float(low[(*a, *b)]), float(high[(*a, *b)])],
            "alone": [float(pairs.effect[a]), float(pairs.effect[b])],
        }
        for a, b, value in pairs.strongest(STRONGEST)
    ]


def _layer(subject: Subject, pairs: Pairwise, layer: int) -> dict[str, Any]:
    """A layer's heads cut together, and what singles and pairs say that it costs."""
    n = pairs.effect.shape[1]
    group = ablation.group(
        subject.model,
        subject.repeats,
        heads=[(layer, head) for head in range(n)],
        kind="mean",
        reference=subject.repeats_reference,
    )
    singles = pairs.effect[layer].sum()
    within = pairs.interaction[layer, :, layer].triu(1).nan_to_num().sum()
    return {
        "together": group.together,
        "interval": list(group.interval()),
        "sum_of_singles": singles,
        "with_pairs": singles + within,
        "kept_alone": group.kept_alone,
    }


def _figure(pairs: Pairwise) -> plots.Figure:
    n = pairs.effect.numel()
    names = [head_name((int(i), int(j))) for i, j in torch.ones_like(pairs.effect).nonzero()]
    return plots.interaction_heatmap(pairs.interaction.reshape(n, n), names)


if __name__ == "__main__":
    typer.run(main)
