"""All heads as one table."""

from typing import TYPE_CHECKING

from interp.report.findings import Findings

if TYPE_CHECKING:
    from pandas import DataFrame


def head_table(findings: Findings) -> "DataFrame":
    """A row a head: its scores, and what cutting it costs."""
    statistics, cut = findings.statistics, findings.cut
    interval, about = cut.interval(), findings.induction
    columns = {
        "induction": statistics.induction,
        "previous token": statistics.previous_token,
        "duplicate token": statistics.duplicate_token,
        "first token": statistics.sink,
        "norm. entropy": statistics.normalized_entropy,
        "write": statistics.write_norm,
        "Δloss": cut.effect,
        "low": interval.low,
        "high": interval.high,
    }
    if about is not None:
        columns["induction"] = about.found.evidence.score.mean(-1)
    n_layers, n_heads = cut.effect.shape
    names = [f"L{layer}H{head}" for layer in range(n_layers) for head in range(n_heads)]
    import pandas

    table = pandas.DataFrame({"head": names})
    for name, values in columns.items():
        table[name] = values.flatten().tolist()
    if about is not None:
        kinds = {at: "induction" for at in about.found}
        earlier = about.circuit.source_heads if about.circuit else []
        kinds |= dict.fromkeys(earlier, "carrier")
        places = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
        table["is"] = [kinds.get(at, "") for at in places]
    return table
