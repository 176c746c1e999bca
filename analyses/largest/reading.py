"""The task, the trained head, and what its last row's attention is like at any length."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

import interp
from interp.attention import AttentionCall, AttentionView
from interp.hooks import Tap
from interp.metrics import UNSCORED
from interp.tasks import Batch

LEVELS, CLASSES = 32, 8
ASK = LEVELS * CLASSES  # the token that asks, after all items
SHORTEST, LONGEST = 4, 16  # items in training
AT_ONCE = 1 << 18  # tokens that are read together


def drawn(n_items: int, n: int, generator: torch.Generator) -> Batch:
    """Items of a level and a class, one of them above all others; the last token asks its class.

    The winner's level is uniform from 1, the others' uniform below it.
    """
    best = torch.randint(1, LEVELS, (n, 1), generator=generator)
    levels = (torch.rand(n, n_items, generator=generator) * best).long()
    at = torch.randint(n_items, (n, 1), generator=generator)
    levels.scatter_(1, at, best)
    classes = torch.randint(CLASSES, (n, n_items), generator=generator)
    tokens = torch.cat([levels * CLASSES + classes, torch.full((n, 1), ASK)], 1)
    targets = torch.full_like(tokens, UNSCORED)
    targets[:, -1] = classes.gather(1, at)[:, 0]
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)


def training_batch(n: int, generator: torch.Generator) -> Batch:
    """Sequences of one length, drawn from the range that is trained on."""
    n_items = int(torch.randint(SHORTEST, LONGEST + 1, (1,), generator=generator))
    return drawn(n_items, n, generator)


def trained(out: Path, *, seed: int, steps: int, cap: float | None = None) -> interp.Transformer:
    """One head without positions, its scores within ±cap; read where it is finished."""
    config = interp.TransformerConfig(
        n_layers=1,
        n_heads=1,
        d_model=32,
        d_vocab=ASK + 1,
        n_ctx=LONGEST + 1,
        positional="none",
        score_soft_cap=cap,
        init_seed=seed,
    )
    run = interp.train(
        config,
        training_batch,
        out=out / f"{steps}-seed{seed}-cap{cap}",
        resume=True,
        progress=False,
        steps=steps,
        batch_size=128,
        seed=seed,
        evaluate_every=500,
        checkpoints_per_octave=0,
    )
    return run.model.eval()


def stretched(model: interp.Transformer, n_items: int) -> interp.Transformer:
    """The same weights with room for more tokens: there are no positions in them."""
    longer = interp.Transformer(replace(model.config, n_ctx=n_items + 1))
    longer.load_state_dict(model.state_dict())
    return longer.eval().requires_grad_(False)


@dataclass
class LastRow:
    """A kernel that computes the last row alone, which is all that is asked, and looks at it.

    Attributes:
        sharpened: What q·k is multiplied with, before a cap.
        found: By name, a value a sequence: nats, weights, and the spread of the scores.
    """

    sharpened: float = 1.0
    found: dict[str, list[Tensor]] = field(default_factory=dict)

    def __call__(self, call: AttentionCall, tap: Tap) -> Tensor:
        """Z with zeros in every other row."""
        q = call.q[:, :, -1:] * self.sharpened
        view = AttentionView(q, call.k, scale=call.scale, soft_cap=call.soft_cap)
        scores = (q @ call.k.mT) * call.scale
        if call.soft_cap is not None:
            scores = call.soft_cap * torch.tanh(scores / call.soft_cap)
        rows = {
            "entropy": view.entropy(),
            "normalized_entropy": view.entropy(normalized=True),
            "max_weight": view.max_weight(),
            "spread": scores.amax(-1) - scores.amin(-1),
        }
        for name, values in rows.items():
            self.found.setdefault(name, []).append(values.flatten())
        z = torch.zeros_like(call.q)
        z[:, :, -1:] = view.mean_of(call.v)
        return z


@torch.no_grad()
def read(
    model: interp.Transformer, n_items: int, *, sequences: int, sharpened: float = 1.0
) -> dict[str, Tensor]:
    """A value a sequence: whether the answer is right, and the last row's attention."""
    longer, kernel = stretched(model, n_items), LastRow(sharpened)
    generator, right = torch.Generator().manual_seed(n_items), []
    at_once = max(1, min(sequences, AT_ONCE // n_items))
    for _ in range(0, sequences, at_once):
        batch = drawn(n_items, at_once, generator)
        resid = longer(batch.tokens, kernel=kernel, stop_at_layer=1)[:, -1:]
        logits = longer(resid, start_at_layer=1)
        right.append((logits[:, -1].argmax(-1) == batch.targets[:, -1]).float())
    return {"right": torch.cat(right)} | {k: torch.cat(v) for k, v in kernel.found.items()}


def bound(spread: Tensor, n_keys: int) -> Tensor:
    """The most that one of n keys can weigh when scores lie within a spread: e^Δ/(e^Δ + n − 1)."""
    return torch.sigmoid(spread - torch.log(torch.tensor(n_keys - 1.0)))
