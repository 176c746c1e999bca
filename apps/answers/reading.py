"""What the model predicts: losses, top tokens, the logit lens, who wrote the answer."""

import re
from dataclasses import dataclass

import numpy as np
import torch

from apps.answers.heads import batch_for
from apps.prompts import Prompt, label_of
from apps.sources import Opened
from interp import lens, metrics
from interp.plots.arrays import as_floats
from interp.tasks import Batch


@dataclass(frozen=True)
class ScoreCard:
    """How well the model does on samples: where the task asks, and elsewhere (next token)."""

    loss: float
    elsewhere: float
    accuracy: float


@dataclass(frozen=True)
class Guess:
    """A token that the model holds for possible."""

    token: str
    probability: float
    logit: float


def at_tokens(values: np.ndarray, prompt: Prompt) -> np.ndarray:
    """Numbers of predictions, put where they are read: at the token that was predicted.

    Where the task asks for something else than the next token, they stay where the answer is given.
    """
    if not prompt.reads_on:
        return values
    return np.concatenate([[np.nan], values[:-1]]).astype(np.float32)


def logits_of(opened: Opened, batch: Batch) -> torch.Tensor:
    """The model's logits [B T V]."""
    mask = None if bool(batch.mask.all()) else batch.mask
    with torch.no_grad():
        return opened.model(batch.tokens, mask=mask)


def losses_from(logits: torch.Tensor, prompt: Prompt) -> np.ndarray:
    """Loss in nats at each token [T], NaN where nothing is predicted."""
    found = metrics.per_token_loss(logits, prompt.read_batch.targets)
    return at_tokens(as_floats(found[0]), prompt)


def losses(opened: Opened, prompt: Prompt) -> np.ndarray:
    """Loss in nats at each token [T]."""
    return losses_from(logits_of(opened, prompt.batch), prompt)


def score_card(opened: Opened) -> ScoreCard:
    """Loss and accuracy over held-out samples."""
    batch = batch_for(opened, None)
    logits = logits_of(opened, batch)
    weights = metrics.scored_counts(batch.targets)
    everywhere = metrics.next_token_targets(batch.tokens, batch.mask)
    rest = everywhere.masked_fill(batch.targets != metrics.UNSCORED, metrics.UNSCORED)
    return ScoreCard(
        loss=float(metrics.weighted_mean(metrics.loss(logits, batch), weights)),
        elsewhere=float(metrics.per_token_loss(logits, rest).nanmean()),
        accuracy=float(metrics.weighted_mean(metrics.accuracy(logits, batch), weights)),
    )


def top_tokens(opened: Opened, prompt: Prompt, position: int, count: int = 10) -> list[Guess]:
    """What the model holds for most likely after reading up to a position."""
    return guesses(opened, logits_of(opened, prompt.batch), position, count)


def guesses(opened: Opened, logits: torch.Tensor, position: int, count: int) -> list[Guess]:
    """The likeliest tokens at a position, best first."""
    row = logits[0, position].float()
    best = row.softmax(-1).topk(min(count, len(row)))
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [Guess(label_of(opened, t), p, float(row[t])) for p, t in pairs]


@dataclass(frozen=True)
class LensGrid:
    """The logit lens over layers and positions.

    Attributes:
        values: [L+1 T] probability of what should be said; NaN where nothing is asked.
        words: The likeliest token of each cell.
        layers: Names of the rows.
    """

    values: np.ndarray
    words: list[list[str]]
    layers: list[str]


def lens_grid(opened: Opened, prompt: Prompt) -> LensGrid:
    """What the stream already says before each layer and at the end."""
    batch = prompt.read_batch
    logits = lens.logit_lens(opened.model, batch.tokens)[:, 0].float()
    targets = batch.targets[0]
    asked = targets.clamp(min=0).expand(len(logits), -1)[..., None]
    values = logits.softmax(-1).gather(-1, asked)[..., 0]
    values = values.masked_fill(targets == metrics.UNSCORED, torch.nan)
    words = [[label_of(opened, t) for t in row] for row in logits.argmax(-1).tolist()]
    names = [f"before L{layer}" for layer in range(len(words) - 1)]
    return LensGrid(as_floats(values), words, [*names, "output"])


def asked_at(opened: Opened, prompt: Prompt, position: int) -> str:
    """The token that should be said at a position; nothing where none is asked."""
    target = int(prompt.read_batch.targets[0, position])
    return "" if target == metrics.UNSCORED else label_of(opened, target)


@dataclass(frozen=True)
class Parts:
    """Who wrote the logit of a token.

    Attributes:
        labels: Of the parts, in the order of the model.
        effects: What each adds to the logit.
        left_out: How many smaller parts are not among them.
        token: Whose logit it is.
        answer: Its string.
    """

    labels: list[str]
    effects: list[float]
    left_out: int
    token: int
    answer: str


def attribution(opened: Opened, prompt: Prompt, position: int, most: int) -> Parts:
    """Who wrote the logit of what should be said at a position, or else of what the model says."""
    batch = prompt.read_batch
    token = int(batch.targets[0, position])
    if token == metrics.UNSCORED:
        token = int(logits_of(opened, prompt.batch)[0, position].argmax())
    answer = torch.full_like(batch.tokens, -1)
    answer[0, position] = token
    found = lens.direct_logit_attribution(opened.model, batch.tokens, answer)
    largest = found.effect.abs().topk(min(most, len(found.effect))).indices.sort().values.tolist()
    labels = [PART_NAMES.get(name, name) for name in found.components]
    labels = [re.sub(r"^(\d+)_mlp_out$", r"MLP \1", label) for label in labels]
    return Parts(
        labels=[labels[i] for i in largest],
        effects=[float(found.effect[i]) for i in largest],
        left_out=len(labels) - len(largest),
        token=token,
        answer=label_of(opened, token),
    )


PART_NAMES = {
    "embed": "token embedding",
    "pos_embed": "position",
    "biases": "attention biases",
    "end": "final biases",
}
