"""Pictures of how heads work together: the induction circuit, and pairs of heads."""

from typing import TYPE_CHECKING

import torch

from interp import plots
from interp.circuits import InductionCircuit
from interp.plots import Edge, Figure
from interp.report.interactions import Interactions

if TYPE_CHECKING:
    from pandas import DataFrame

PAIRS = 12  # in the table


def circuit_figures(circuit: InductionCircuit) -> list[Figure]:
    """The graph of its edges, and what is lost without its parts."""
    return [_graph(circuit), _losses(circuit)] if circuit.sources else []


def _graph(circuit: InductionCircuit) -> Figure:
    edges = [
        Edge(source, target, float(circuit.score_drop[i, j]), "K", circuit.evidence(i, j))
        for i, source in enumerate(circuit.sources)
        for j, target in enumerate(circuit.targets)
        if not circuit.score_drop[i, j].isnan()
    ]
    return plots.circuit(
        {name: _place(name) for name in (*circuit.sources, *circuit.targets)},
        edges,
        title="Which earlier heads do the induction heads read?",
        sign="width = what the target's induction score loses when this edge alone is cut",
        formula="induction score − the same with what the source writes taken off the target's "
        "keys, and nothing else",
    )


def _place(name: str) -> tuple[float, float]:
    layer, head = name[1:].split("H")
    return float(layer), float(head)


def _losses(circuit: InductionCircuit) -> Figure:
    cuts = {
        "the earlier heads": circuit.loss_without_previous,
        "same, patterns held": circuit.loss_without_previous_kept_patterns,
        "the induction heads": circuit.loss_without_induction,
    }
    return plots.effect_bars(
        list(cuts),
        torch.tensor(list(cuts.values())),
        title="Do the earlier heads say where to look, or what to say?",
        formula="loss on repeats with these heads set to zero − loss as it is; held: with all "
        "patterns of the model as in the clean run",
    )


def edge_table(circuit: InductionCircuit) -> "DataFrame":
    """A row an edge, with its evidence."""
    frame = circuit.frame().query("score_drop == score_drop")  # NaN where there is no edge
    return frame.rename(columns=EVIDENCE).filter(items=list(EVIDENCE.values()))


EVIDENCE = {
    "source": "from",
    "target": "to",
    "score_drop": "score lost, cut through keys",
    "score_drop_q": "… through queries",
    "composition": "K-composition",
    "percentile": "above random",
    "token_match": "finds its own token",
    "token_match_without": "… without the source",
}


def pair_figure(pairs: Interactions) -> Figure:
    """The interaction of every pair that was cut."""
    return plots.interaction_heatmap(pairs.interaction, pairs.heads)


def pair_table(pairs: Interactions) -> "DataFrame":
    """The strongest pairs, with their intervals and what each head costs alone."""
    import pandas

    alone = dict(zip(pairs.heads, pairs.alone.tolist(), strict=True))
    return pandas.DataFrame(
        [
            {
                "heads": f"{a}, {b}",
                "interaction": value,
                "low": low,
                "high": high,
                "first alone": alone[a],
                "second alone": alone[b],
            }
            for a, b, value, low, high in pairs.strongest(PAIRS)
        ]
    )
