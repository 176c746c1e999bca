"""How heads work together, in sentences: the induction circuit, and pairs of heads."""

import torch

from interp.circuits import InductionCircuit
from interp.report.findings import Findings
from interp.report.interactions import Interactions
from interp.report.phrases import listed, names, nats, span

SURELY = 0.05  # nats; less than this is not spoken of
LITTLE, MOST = 0.1, 0.5  # of what the earlier heads are worth, with all patterns held


def circuit_said(findings: Findings) -> list[str]:
    """What the induction heads stand on, by which way, and edge by edge."""
    circuit = findings.induction.circuit if findings.induction else None
    if circuit is None:
        return []
    if not circuit.sources:
        return [
            "No earlier heads were found that this stands on: cutting them leaves its score above "
            f"half of {circuit.score:.2f}."
        ]
    return [f"{_stands(findings, circuit)} {_way(circuit)}", _edges(circuit)]


def _stands(findings: Findings, circuit: InductionCircuit) -> str:
    heads = sorted(circuit.source_heads)
    looks = [f"{float(findings.statistics.previous_token[head]):.2f}" for head in heads]
    one, alone = len(heads) == 1, len(circuit.targets) == 1
    return (
        f"{'It stands' if alone else 'They stand'} on {names(heads)}, which put{'s' * one} "
        f"{listed(looks)} of {'its' if one else 'their'} attention on the token before: with "
        f"{'it' if one else 'these'} cut, the induction score falls from {circuit.score:.2f} to "
        f"{circuit.score_without:.2f}."
    )


def _way(circuit: InductionCircuit) -> str:
    """Through where others look, or through what they pass on: Olsson et al.'s two ablations."""
    whole = circuit.loss_without_previous
    held = circuit.loss_without_previous_kept_patterns
    costs = (
        f"The loss on repeats then changes by {nats(whole)}, and with every attention pattern held "
        f"as it was by {nats(held)}"
    )
    if whole < SURELY:
        return f"{costs}."
    one = len(circuit.sources) == 1
    tell, pass_on = ("it tells", "passes") if one else ("they tell", "pass")
    if abs(held) <= LITTLE * whole:
        return f"{costs}: {tell} the others where to look, not what to say."
    if held >= MOST * whole:
        return f"{costs}: {tell} the others little of where to look, and {pass_on} something on."
    return f"{costs}: {tell} the others where to look, and {pass_on} something on too."


def _edges(circuit: InductionCircuit) -> str:
    keys, queries = circuit.score_drop, circuit.score_drop_q
    known = ~keys.isnan()
    n = int(known.sum())
    worth = span(float(keys[known].min()), float(keys[known].max()))
    asked = span(float(queries[known].min()), float(queries[known].max()))
    which = "the edge" if n == 1 else f"each of the {n} edges"
    return (
        f"Cut alone, {which} into the keys of an induction head costs {worth} of that head's "
        f"score; into its queries, {asked}."
    )


def pairs_said(findings: Findings) -> list[str]:
    """The pair that backs each other up most, and the pair that needs each other most."""
    pairs = findings.pairs
    if pairs is None:
        return []
    among = "" if pairs.all_heads else f" Of the {len(pairs.heads)} heads that cost most:"
    said = [*_backed(pairs), *_needed(pairs)]
    if not said:
        said = ["no pair of heads costs surely more, or less, than both alone added up."]
    first, rest = said[0], said[1:]
    first = f"{among.strip()} {first}" if among else first[0].upper() + first[1:]
    return [" ".join([first, *rest])]


def _backed(pairs: Interactions) -> list[str]:
    low = pairs.low.nan_to_num(-torch.inf)
    if not float(low.max()) > SURELY:
        return []
    a, b = divmod(int(low.argmax()), len(pairs.heads))
    return [
        f"{pairs.heads[a]} and {pairs.heads[b]} back each other up: without both the loss rises "
        f"by {nats(float(pairs.interaction[a, b]))} more than without each, added up."
    ]


def _needed(pairs: Interactions) -> list[str]:
    high = pairs.high.nan_to_num(torch.inf)
    if not float(high.min()) < -SURELY:
        return []
    a, b = divmod(int(high.argmin()), len(pairs.heads))
    less = -float(pairs.interaction[a, b])
    return [
        f"{pairs.heads[a]} and {pairs.heads[b]} need each other: without both the loss rises by "
        f"{nats(less).lstrip('+')} less than without each, added up."
    ]
