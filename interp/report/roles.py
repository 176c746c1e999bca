"""Is a head that spreads its attention idle? Three tests, and a word that needs all of them."""

from dataclasses import dataclass
from typing import Literal

from interp.report.findings import Findings

Word = Literal["essential", "of use", "idle", "dispensable", "harmful", "of unclear use"]

ESSENTIAL = 0.05  # nats
NOTHING = 0.01  # nats
LITTLE = 0.25  # of the median head's write
SINK = 0.5  # attention on the first token


@dataclass(frozen=True)
class Role:
    """What a head that is near-uniform, or a sink, is to the model.

    Attributes:
        head: Layer and head.
        near_uniform: Whether its normalised entropy reaches the threshold.
        entropy: Mean normalised entropy over rows with enough keys.
        sink: Its attention on the first token.
        write: Norm of what it writes, as a share of the median head's.
        effect: What cutting it costs, in nats.
        flattened: What making its pattern uniform costs.
        word: See `word_for`.
    """

    head: tuple[int, int]
    near_uniform: bool
    entropy: float
    sink: float
    write: float
    effect: float
    flattened: float
    word: Word


def roles_of(findings: Findings) -> list[Role]:
    """The heads that are near-uniform or sinks."""
    statistics, cut = findings.statistics, findings.cut
    near = statistics.near_uniform()
    sinks = [(int(a), int(b)) for a, b in (statistics.sink >= SINK).nonzero().tolist()]
    interval, typical = cut.interval(), float(statistics.write_norm.median())
    roles = []
    for head in sorted({*near, *sinks}):
        effect, low, high = (float(x[head]) for x in (cut.effect, interval.low, interval.high))
        write = float(statistics.write_norm[head]) / typical if typical > 0 else 0.0
        roles.append(
            Role(
                head=head,
                near_uniform=head in near,
                entropy=float(statistics.broad_entropy[head]),
                sink=float(statistics.sink[head]),
                write=write,
                effect=effect,
                flattened=float(findings.flattened.effect[head]),
                word=word_for(effect, low=low, high=high, write=write),
            )
        )
    return roles


def word_for(effect: float, *, low: float, high: float, write: float) -> Word:
    """What a head is, by what cutting it costs.

    "essential" if that is surely more than 0.05 nats, "of use" if it surely costs something (0.01
    or more), "harmful" if the loss surely falls by as much. If it is less than 0.01, "idle" where
    the head writes little too, else "dispensable". "of unclear use" if the interval holds 0 and
    the effect is not small.

    Args:
        effect: Ablated minus clean, in nats.
        low: Lower end of its interval.
        high: Upper end.
        write: Norm of what it writes, as a share of the median head's.
    """
    if low > ESSENTIAL:
        return "essential"
    if abs(effect) < NOTHING:
        return "idle" if write < LITTLE else "dispensable"
    if low > 0:
        return "of use"
    return "harmful" if high < 0 else "of unclear use"
