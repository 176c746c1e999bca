"""The mean of all tokens so far at a trigger, nothing elsewhere: task, models, measures."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import interp
from interp import probes
from sinks.kinds import SCORES, Hook, Kind, hiding

CONTENT, OTHERS, LENGTH = 8, 64, 16
BOS, TRIGGER = OTHERS, OTHERS + 1


@dataclass(frozen=True)
class Found:
    """One trained model.

    Attributes:
        error: As a share of that of an output that is always 0.
        error_cut: The same, with the first key hidden from all rows but the trigger's.
        sink: Weight on the first key in rows before the trigger, of the head that has most.
        sink_after: In rows after it.
        sink_at_trigger: At the trigger, of the same head.
        drained: Norm of what the first token's value writes over the others' mean (one layer).
    """

    error: float
    error_cut: float
    sink: float
    sink_after: float
    sink_at_trigger: float
    drained: float | None


def model_of(kind: Kind, seed: int) -> interp.Transformer:
    """A model whose embeddings say content, mark and count, and whose output reads 8 coordinates.

    Residual stream: contents, output (0 at first), marks of BOS, trigger and others, and 1 over
    the number of tokens to average. Only the heads are trained.
    """
    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 2 * CONTENT + 4, "d_head": 2 * CONTENT + 4}
    config = interp.TransformerConfig(
        **{**sizes, **kind.changes},
        d_vocab=OTHERS + 2,
        d_vocab_out=CONTENT,
        n_ctx=LENGTH,
        normalization="none",
        bias=False,
        init_seed=seed,
    )
    model = interp.Transformer(config)
    drawn = torch.randn(OTHERS, CONTENT, generator=torch.Generator().manual_seed(100))
    for part in (model.W_E, model.W_pos, model.W_U):
        part.zero_()
    model.W_E[:OTHERS, :CONTENT] = drawn
    for mark, tokens in enumerate([BOS, TRIGGER, slice(0, OTHERS)]):
        model.W_E[tokens, 2 * CONTENT + mark] = 1.0
    model.W_pos[2:, 2 * CONTENT + 3] = 1 / torch.arange(1, LENGTH - 1)
    model.W_U[CONTENT : 2 * CONTENT] = torch.eye(CONTENT)
    for name, weight in model.named_parameters():
        weight.requires_grad_("attn" in name)
    return model


def drawn_batch(contents: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tokens [n T], and what is wanted [n T 8]: at the trigger the mean of all before it."""
    tokens = torch.randint(OTHERS, (n, LENGTH), generator=generator)
    tokens[:, 0] = BOS
    at = torch.randint(2, LENGTH, (n, 1), generator=generator)
    tokens.scatter_(1, at, TRIGGER)
    content = contents[tokens]
    before = content.cumsum(1) - content
    mean = before / (torch.arange(LENGTH) - 1).clamp(min=1)[:, None]
    return tokens, torch.where((tokens == TRIGGER)[..., None], mean, 0.0)


def trained(kind: Kind, seed: int, steps: int) -> interp.Transformer:
    """Train the heads; `interp.train` asks for tokens, not for numbers, so the loop is here."""
    model, generator = model_of(kind, seed), torch.Generator().manual_seed(seed)
    contents, hooks = model.W_E[:, :CONTENT], kind.hooks()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        tokens, wanted = drawn_batch(contents, 64, generator)
        (model(tokens, hooks=hooks) - wanted)[:, 1:].square().mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def measured(kind: Kind, seed: int, steps: int) -> Found:
    """Train a model and look at it."""
    with torch.enable_grad():
        model = trained(kind, seed, steps)
    contents, hooks = model.W_E[:, :CONTENT], kind.hooks()
    tokens, wanted = drawn_batch(contents, 512, torch.Generator().manual_seed(10_000))
    asked = tokens == TRIGGER
    since = asked.cumsum(1)
    rows = {"before": since == 0, "after": (since == 1) & ~asked, "at": asked}
    rows["before"][:, 0] = False
    sinks = {
        name: probes.head_statistics(model, tokens, rows=some, hooks=hooks).sink.flatten()
        for name, some in rows.items()
    }
    most = int(sinks["before"].argmax())
    cut = [(SCORES, hiding(~asked)), *hooks]
    return Found(
        error=_error(model, tokens, wanted, hooks),
        error_cut=_error(model, tokens, wanted, cut),
        sink=float(sinks["before"][most]),
        sink_after=float(sinks["after"][most]),
        sink_at_trigger=float(sinks["at"][most]),
        drained=_drained(model) if model.config.n_layers == 1 else None,
    )


def _error(
    model: interp.Transformer, tokens: Tensor, wanted: Tensor, hooks: Sequence[Hook]
) -> float:
    """Mean squared error as a share of the targets' mean square, without BOS's row."""
    missed = (model(tokens, hooks=hooks) - wanted)[:, 1:].square().mean()
    return float(missed / wanted[:, 1:].square().mean())


def _drained(model: interp.Transformer) -> float:
    """Norm of what BOS writes to the output where it is attended to, over the others' mean."""
    written = model.W_E @ model.W_V[0, 0] @ model.W_O[0, 0] @ model.W_U
    norms = written.norm(dim=-1)
    return float(norms[BOS] / norms[:OTHERS].mean())
