"""Words that sentences and pictures of a report share."""

from collections.abc import Iterable

from interp.ablation.outcomes import head_name


def names(heads: Iterable[tuple[int, int]]) -> str:
    """L1H0, L1H2 and L1H3."""
    return listed([head_name(head) for head in sorted(heads)])


def listed(words: list[str]) -> str:
    """Words with commas and an "and"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 2 else words)


def nats(effect: float) -> str:
    """An effect with its sign, to the digits that matter."""
    digits = 2 if abs(effect) >= 0.095 else 3
    return f"{effect:+.{digits}f}".replace("-", "−") + " nats"


def span(low: float, high: float) -> str:
    """0.31, or 0.09 to 0.31."""
    ends = [f"{x:.2f}".replace("-", "−") for x in (low, high)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
