"""A circuit as a graph: heads as nodes, layer down, and edges that carry their evidence."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from interp.plots import theme
from interp.plots.arrays import Numbers, as_floats, need_shape
from interp.plots.figure import Figure, finish
from interp.plots.heads import head_names
from interp.plots.matrices import Composition, kept_note, pairs
from interp.plots.text import escape, listing

DASHES = {"": "solid", "K": "solid", "Q": "dash", "V": "dot"}
MOST_WORDS = 4  # edges whose evidence is written on them
NODE = 38  # pixels that a node takes, and the least between two beside each other
NAME_SIZES = {4: 11, 5: 9.5, 6: 8}  # of the longest name, by its characters; in a node's circle


@dataclass(frozen=True)
class Edge:
    """From one node to another, with a weight, what it goes through, and why it is drawn."""

    source: str
    target: str
    weight: float
    kind: str = ""
    evidence: str = ""


def circuit(
    nodes: Mapping[str, tuple[float, float]],
    edges: Sequence[Edge],
    *,
    threshold: float = 0.0,
    across: str = "head",
    sign: str = "blue = positive, red = negative; width grows with the square root of the weight",
    title: str = "Which heads work together?",
    formula: str = "",
    theme: str = "light",
) -> Figure:
    """Nodes on (layer, column), first layer on top; edges point down, the strong ones thick.

    Edges below the threshold are left out, and the note says how many are shown and which share
    of the weight they hold. Edges through K are solid, through Q dashed, through V dotted.

    Args:
        nodes: (layer, column) of each node, by name.
        edges: what connects them.
        threshold: the least size of a weight that is drawn.
        across: what a column is: "head" or "position".
        sign: what colour and width mean.
        title: the question asked.
        formula: how the weights are made.
        theme: "light" or "dark".

    Raises:
        ValueError: an edge names a node that is not there, or a kind that is none of K, Q, V.
    """
    _check(nodes, edges)
    shown = [e for e in edges if abs(e.weight) >= threshold and np.isfinite(e.weight)]
    lost = sum(not np.isfinite(e.weight) for e in edges)
    largest = max((abs(e.weight) for e in shown), default=1.0) or 1.0
    widest = 7.0 if len(shown) <= 24 else 3.5
    lines = [_line(nodes, edge, largest, widest) for edge in shown]
    fig = Figure([*lines, _middles(nodes, shown), _nodes(nodes, shown)], _layout(nodes, across))
    weights = np.array([e.weight for e in edges], dtype=np.float64)
    strongest = sorted(shown, key=lambda e: -abs(e.weight))
    named = [
        f"{e.source} → {e.kind} {e.target} {e.weight:.2f}".replace("  ", " ") for e in strongest
    ]
    return finish(
        fig,
        question=title,
        alt=f"{len(shown)} of {len(edges)} edges; strongest: {listing(named) or 'none'}.",
        formula=formula,
        sign=sign,
        notes=[
            f"showing {kept_note(weights, threshold)}",
            f"{lost} edges without a number (NaN) left out" if lost else "",
            sign,
        ],
        theme=theme,
        height=120 * len({layer for layer, _ in nodes.values()}) + 70,
        top=20,
        least_width=90 + NODE * (1 + _columns(nodes)),
    )


def _check(nodes: Mapping[str, tuple[float, float]], edges: Sequence[Edge]) -> None:
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in nodes:
                raise ValueError(f"an edge names {end!r}, but the nodes are {', '.join(nodes)}")
        if edge.kind not in DASHES:
            raise ValueError(f"an edge goes through K, Q, V or '', not {edge.kind!r}")


def _line(
    nodes: Mapping[str, tuple[float, float]], edge: Edge, largest: float, widest: float
) -> go.Scatter:
    (y0, x0), (y1, x1) = nodes[edge.source], nodes[edge.target]
    color = theme.POSITIVE if edge.weight >= 0 else theme.NEGATIVE
    width = 0.7 + (widest - 0.7) * float(np.sqrt(abs(edge.weight) / largest))
    return go.Scatter(
        x=[x0, x1],
        y=[y0, y1],
        mode="lines+markers",
        line={"color": color, "width": width, "dash": DASHES[edge.kind]},
        marker={
            "symbol": "arrow",
            "angleref": "previous",
            "size": [0, 8 + 1.6 * width],
            "standoff": [0, 17],
            "color": color,
        },
        opacity=0.35 + 0.6 * abs(edge.weight) / largest,
        hoverinfo="skip",
        showlegend=False,
        meta={
            "row": {
                "source": edge.source,
                "target": edge.target,
                "kind": edge.kind,
                "weight": edge.weight,
                "evidence": edge.evidence,
            }
        },
    )


def _middles(nodes: Mapping[str, tuple[float, float]], edges: list[Edge]) -> go.Scatter:
    """Points halfway along the edges that can be hovered, with the evidence in words."""
    middles = np.array(
        [np.add(nodes[e.source], nodes[e.target]) / 2 for e in edges], dtype=np.float32
    ).reshape(-1, 2)
    words = [f"{e.weight:.2f}" + (f" {e.kind}" if e.kind else "") for e in edges]
    hover = [
        f"{escape(e.source)} → {escape(e.target)}<br>{word}<br>{escape(e.evidence)}"
        for e, word in zip(edges, words, strict=True)
    ]
    return go.Scatter(
        x=middles[:, 1],
        y=middles[:, 0],
        mode="markers+text" if len(edges) <= MOST_WORDS else "markers",
        marker={"size": 22, "opacity": 0},
        text=[f"  {word}" for word in words],
        textposition="middle right",
        textfont={"size": 12, "color": theme.INK},
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=False,
        name="edges",
    )


def _nodes(nodes: Mapping[str, tuple[float, float]], edges: list[Edge]) -> go.Scatter:
    used = {end for e in edges for end in (e.source, e.target)}
    marker = {"size": 34, "color": theme.PAGE, "line": {"width": 1.6, "color": theme.SOFT_INK}}
    marker["opacity"] = [1.0 if name in used else 0.55 for name in nodes]
    return go.Scatter(
        x=[column for _, column in nodes.values()],
        y=[layer for layer, _ in nodes.values()],
        mode="markers+text",
        marker=marker,
        text=[escape(name) for name in nodes],
        textfont={"size": _name_size(nodes), "color": theme.INK},
        hoverinfo="skip",
        showlegend=False,
        name="nodes",
        cliponaxis=False,
    )


def _name_size(names: Iterable[str]) -> float:
    longest = max((len(name) for name in names), default=0)
    return NAME_SIZES[min(max(longest, min(NAME_SIZES)), max(NAME_SIZES))]


def _columns(nodes: Mapping[str, tuple[float, float]]) -> int:
    columns = [column for _, column in nodes.values()] or [0]
    return int(max(columns) - min(columns))


def _layout(nodes: Mapping[str, tuple[float, float]], across: str) -> dict:
    layers = [layer for layer, _ in nodes.values()] or [0]
    columns = [column for _, column in nodes.values()] or [0]
    quiet = {"showgrid": False, "zeroline": False, "dtick": 1, "tick0": 0}
    return {
        "xaxis": quiet
        | {"title": {"text": escape(across)}, "range": [min(columns) - 0.6, max(columns) + 0.6]},
        "yaxis": quiet
        | {
            "title": {"text": "layer (first on top)"},
            "range": [max(layers) + 0.5, min(layers) - 0.5],
            "tickprefix": "L",
        },
        "hoverdistance": 30,
    }


def composition_graph(
    scores: Numbers,
    *,
    kind: Composition = "K",
    threshold: float = 0.0,
    title: str | None = None,
    theme: str = "light",
) -> Figure:
    """The pairs of heads that compose, as a graph; scores as for `composition_heatmap`.

    Args:
        scores: [L H L H], writer then reader.
        kind: through which input the reader reads.
        threshold: the least score that is drawn.
        title: the question asked.
        theme: "light" or "dark".
    """
    array = as_floats(scores)
    need_shape(array, "layer head layer head", "scores")
    flat, possible = pairs(array)
    names = head_names(array[:, :, 0, 0])
    places = dict(zip(names, np.ndindex(array.shape[:2]), strict=True))
    edges = [Edge(names[a], names[b], float(flat[a, b]), kind) for a, b in np.argwhere(possible)]
    return circuit(
        {name: (float(layer), float(head)) for name, (layer, head) in places.items()},
        edges,
        threshold=threshold,
        title=title or f"Which heads feed the {kind} of which?",
        formula="‖W_A W_B‖ / (‖W_A‖ ‖W_B‖), Frobenius norms",
        theme=theme,
    )
