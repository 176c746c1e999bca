"""What is held in each run, the runs, and what their heads are for."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

import interp
from interp import ablation, metrics, probes, tasks
from interp.training.clamps import Clamp

HEADS = 4
PREVIOUS = Clamp(to="previous_token", heads=((0, 0),))
MATCH = Clamp(to="match", heads=((1, 0),))
NO_PREVIOUS, NO_MATCH = (Clamp(to="uniform", layers=(layer,)) for layer in (0, 1))
ALONE_BELOW, ALONE = (
    Clamp(to="zero", heads=tuple((layer, head) for head in range(1, HEADS))) for layer in (0, 1)
)
CONDITIONS: dict[str, tuple[Clamp, ...]] = {
    "nothing held": (),
    "previous token given": (PREVIOUS,),
    "match given": (MATCH,),
    "previous token prevented": (NO_PREVIOUS,),
    "match prevented": (NO_MATCH,),
    "one head in the second layer": (ALONE,),
    "one head in the first layer": (ALONE_BELOW,),
}


@dataclass(frozen=True)
class Setting:
    """Sizes and training: the demo's model, and shorter sequences.

    Attributes:
        d_model: Width, for four heads.
        steps: At a constant learning rate, so that time alone tells early from late.
        every: Steps between measurements.
        seeds: Weights and data, drawn anew for each.
    """

    d_model: int = 64
    steps: int = 600
    every: int = 20
    seeds: int = 3

    def departures(self) -> list[str]:
        """What is not the paper's."""
        return [
            "Repeats of random tokens (64 of them, 48 positions, periods 8 to 22), not pairs of "
            "Omniglot images and labels.",
            "Two layers of 4 heads (8), with layer norm; AdamW at a constant 3e-3 (Adam at 1e-5), "
            f"{self.steps} steps of 32 sequences (1,000,000 of 32), {self.seeds} seeds.",
            "Given are patterns, of one head; what a head copies is not held, so the third part "
            "is seen as what is left when the match is given.",
            "Held patterns are held in the measurements too.",
        ]


def trained(
    out: Path, setting: Setting, *, name: str, clamps: tuple[Clamp, ...], seed: int
) -> interp.Run:
    """A run with something held; read where it is finished."""
    task = tasks.make("repeated_tokens", vocab=64, length=48, min_period=8, max_period=22)
    config = interp.TransformerConfig(
        n_layers=2,
        n_heads=HEADS,
        d_model=setting.d_model,
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        positional="rotary",
        bos_token=task.bos_token,
        init_seed=seed,
    )
    folder = f"{name.replace(' ', '-')}-d{setting.d_model}-{setting.steps}-seed{seed}"
    return interp.train(
        config,
        task,
        out=out / "what_needs_to_go_right" / folder,
        resume=True,
        progress=False,
        steps=setting.steps,
        batch_size=32,
        seed=seed,
        schedule="constant",
        evaluate_every=setting.every,
        checkpoints_per_octave=0,
        clamps=clamps,
    )


@torch.no_grad()
def kept(run: interp.Run) -> dict[str, Any]:
    """Loss with some heads of a layer left, by how many; and each head's scores.

    Of each layer, for each set of heads that stay: the others are cut to 0.
    """
    batch = run.task.batch(128, torch.Generator().manual_seed(10_000), split="held_out")
    found: dict[str, Any] = {
        "loss": float(metrics.mean_loss(run.model(batch.tokens), batch.targets))
    }
    for layer in (0, 1):
        left: dict[int, list[float]] = {}
        for n in range(HEADS):
            for stay in combinations(range(HEADS), n):
                cut = [(layer, head) for head in range(HEADS) if head not in stay]
                logits = ablation.ablate(run.model, batch.tokens, heads=cut, kind="zero")
                left.setdefault(n, []).append(float(metrics.mean_loss(logits, batch.targets)))
        found[f"layer {layer}"] = left
    found["induction"] = probes.induction_scores(run.model)[1].tolist()
    heads = probes.head_statistics(run.model, batch.tokens)
    found["previous token"] = heads.previous_token[0].tolist()
    return found
