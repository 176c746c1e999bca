"""What was found, in sentences."""

from collections.abc import Sequence

import numpy as np

from apps.answers.reading import ScoreCard
from apps.prompts import task_of
from apps.sources import Opened
from interp.plots.text import listing, rounded
from interp.probes import InductionHeads

NEAR_UNIFORM = 0.9
ESSENTIAL, NOTHING = 0.1, 0.01  # nats of Δloss
PLACES = {"repeated_tokens": ("on the repeats", "elsewhere, where it can only guess")}

Head = tuple[int, int]


def name_of(head: Head) -> str:
    """`L1H3`."""
    return f"L{head[0]}H{head[1]}"


def signed(nats: float) -> str:
    """`+0.43`, `−1.70`: with the minus of the figures."""
    return f"{nats:+.2f}".replace("-", "−")


def places(opened: Opened) -> tuple[str, str]:
    """What the positions are called that the task asks at, and the others."""
    asked = task_of(opened)
    task = asked.name if asked is not None else ""
    return PLACES.get(task, ("where the task asks", "elsewhere"))


def induction_sentence(found: InductionHeads | None) -> str:
    """Which heads do induction."""
    if found is None:
        return "This model has no room for the trials that find induction heads."
    if not found:
        return "No head passes as an induction head here."
    scores = found.evidence.score.mean(-1)
    named = [f"{name_of(head)} ({float(scores[head]):.2f})" for head in found]
    if len(named) == 1:
        return f"{named[0].replace(' (', ' is an induction head (')}."
    return f"{listing(named)} are induction heads."


def uniform_sentence(
    uniform: Sequence[Head], evenness: np.ndarray, effect: np.ndarray | None
) -> str:
    """Which heads attend almost evenly, and whether the model needs them, if Δloss is known."""
    if not uniform:
        return "No head is near-uniform."
    if effect is None:
        return f"Near-uniform: {listing([f'{name_of(h)} ({evenness[h]:.2f})' for h in uniform])}."
    needed = [head for head in uniform if effect[head] >= ESSENTIAL]
    if not needed:
        listed = listing([f"{name_of(h)} ({evenness[h]:.2f})" for h in uniform])
        verb = "is" if len(uniform) == 1 else "are"
        return f"{listed} {verb} near-uniform; cutting one alone costs little."
    listed = listing([f"{name_of(h)} ({evenness[h]:.2f})" for h in needed])
    rise = listing([f"{rounded(float(effect[h]), plus=True)} nats" for h in needed])
    if len(needed) == 1:
        return f"{listed} is near-uniform and essential: without it the loss changes by {rise}."
    return f"{listed} are near-uniform and essential: cutting each costs {rise}."


def loss_sentence(opened: Opened, card: ScoreCard) -> str:
    """How well the model does."""
    if not np.isfinite(card.loss):
        return "Its logits are not over the tokens that it reads: there is no loss to speak of."
    asked, rest = places(opened)
    words = f"Loss {asked}: {card.loss:.2f} nats"
    return f"{words}; {rest}: {card.elsewhere:.2f}." if np.isfinite(card.elsewhere) else f"{words}."
