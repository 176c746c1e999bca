"""Ways to attend: softmax, ReLU in its place, and either with the first key hidden."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Hook = tuple[str, Callable[..., Any]]
SCORES, PATTERN = "blocks.*.attn.hook_attn_scores", "blocks.*.attn.hook_pattern"


class Rectified:
    """Hooks that put max(score, 0) in the place of softmax: weights that need not sum to 1."""

    def __init__(self) -> None:
        self.scores: dict[int, Tensor] = {}

    def keep(self, scores: Tensor, hook: Any) -> None:
        """Remember a layer's scores until its pattern is asked for."""
        self.scores[hook.layer()] = scores

    def replaced(self, pattern: Tensor, hook: Any) -> Tensor:
        """The pattern that goes on; −inf, which marks what is masked, becomes 0."""
        return self.scores.pop(hook.layer()).relu()

    def hooks(self) -> list[Hook]:
        """For `model(tokens, hooks=…)`."""
        return [(SCORES, self.keep), (PATTERN, self.replaced)]


@dataclass(frozen=True)
class Kind:
    """How a model attends.

    Attributes:
        changes: Of the model's config.
        rectified: ReLU in the place of softmax.
        hidden: The first key is seen by no row but its own.
    """

    changes: dict[str, Any] = field(default_factory=dict)
    rectified: bool = False
    hidden: bool = False

    def hooks(self) -> list[Hook]:
        """What every call of the model needs."""
        hide = [(SCORES, hiding(torch.ones(1, 1, dtype=torch.bool)))] if self.hidden else []
        return hide + (Rectified().hooks() if self.rectified else [])


def hiding(rows: Tensor) -> Callable[..., Tensor]:
    """A hook on scores that hides the first key from rows [batch or 1, T or 1] but its own."""

    def hide(scores: Tensor, hook: Any) -> Tensor:
        asked = rows.expand(-1, scores.shape[2]).clone()
        asked[:, 0] = False
        first = scores[..., :1].masked_fill(asked[:, None, :, None], float("-inf"))
        return torch.cat([first, scores[..., 1:]], -1)

    return hide


KINDS = {
    "softmax": Kind(),
    "softmax, first key hidden": Kind(hidden=True),
    "the same, with a sink logit": Kind({"sink_logits": True}, hidden=True),
    "sink logit, first key seen": Kind({"sink_logits": True}),
    "linear attention": Kind({"attention": "linear"}),
    "ReLU": Kind(rectified=True),
    "softmax, 2 layers × 2 heads": Kind({"n_layers": 2, "n_heads": 2}),
    "ReLU, 2 layers × 2 heads": Kind({"n_layers": 2, "n_heads": 2}, rectified=True),
}
