"""How heads work together: the induction circuit, and composition by the weights."""

from dataclasses import dataclass

import numpy as np

from apps.sources import Opened, UnreadableError
from interp import circuits
from interp.model import Transformer
from interp.plots import Edge
from interp.plots.arrays import as_floats
from interp.probes import InductionHeads

MOST_EDGES, LEAST_SHARE = 40, 40  # edges; per cent of the largest
SEQUENCES = 8  # a period: enough for the picture, and quick


@dataclass(frozen=True)
class Wiring:
    """The induction circuit as a graph.

    Attributes:
        found: With all its evidence.
        nodes: (layer, head) by name.
        edges: From previous-token heads to induction heads, through K.
    """

    found: circuits.InductionCircuit
    nodes: dict[str, tuple[float, float]]
    edges: list[Edge]


def own_transformer(opened: Opened) -> Transformer:
    """The model, if its weights are ours to read.

    Raises:
        UnreadableError: It is a model of another library, run as it is.
    """
    if not isinstance(opened.model, Transformer):
        raise UnreadableError("the weights of a wrapped model can't be read head by head")
    return opened.model


def induction(opened: Opened, found: InductionHeads) -> Wiring:
    """The induction circuit of these heads.

    Raises:
        UnreadableError: The model has no room for the trials.
    """
    model = own_transformer(opened)
    try:
        circuit = circuits.induction_circuit(
            model, n_sequences=SEQUENCES, found=found, periods=found.evidence.periods[-1:]
        )
    except ValueError as error:
        raise UnreadableError(f"induction can't be tried on this model: {error}") from error
    names = [*circuit.sources, *circuit.targets]
    return Wiring(circuit, {name: _place(name) for name in names}, _edges(circuit))


def _place(name: str) -> tuple[float, float]:
    layer, head = name[1:].split("H")
    return float(layer), float(head)


def _edges(found: circuits.InductionCircuit) -> list[Edge]:
    edges = []
    for i, source in enumerate(found.sources):
        for j, target in enumerate(found.targets):
            drop = float(found.score_drop[i, j])
            if not np.isfinite(drop):
                continue
            edges.append(Edge(source, target, drop, "K", found.evidence(i, j)))
    return edges


def evidence(wiring: Wiring) -> list[dict[str, object]]:
    """A row an edge, in numbers."""
    found = wiring.found
    rows = found.frame().to_dict("records") if found.sources and found.targets else []
    return [{str(key): value for key, value in row.items()} for row in rows]


def composition(opened: Opened, kind: str) -> np.ndarray:
    """Composition scores [L H L H] through Q, K or V, less those of random matrices."""
    model = own_transformer(opened)
    assert kind in ("Q", "K", "V")
    return as_floats(circuits.composition_scores(model, kind, subtract_baseline=True))


def readable_share(opened: Opened, kind: str) -> int:
    """Per cent of the largest score over which few enough edges are left to be read: 40 or more."""
    sizes = np.abs(composition(opened, kind))
    sizes = np.sort(sizes[np.isfinite(sizes)])[::-1]
    if len(sizes) <= MOST_EDGES or not sizes[0]:
        return LEAST_SHARE
    return max(LEAST_SHARE, min(100, int(np.ceil(100 * sizes[MOST_EDGES] / sizes[0]))))


def top_score(scores: np.ndarray) -> float:
    """The largest composition score."""
    return float(np.nanmax(np.abs(scores), initial=0.0))
