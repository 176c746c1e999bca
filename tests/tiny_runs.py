"""Training runs of a second, for tests."""

import torch

import interp
from interp.tasks import make

OPTIONS = {
    "steps": 24,
    "batch_size": 4,
    "evaluation_size": 8,
    "evaluate_every": 10,
    "warmup_steps": 5,
    "checkpoints_per_octave": 2,
    "progress": False,
    "device": "cpu",
}

BOTH = {
    "steer": [{"statistic": "normalized_entropy", "weight": 0.5, "layers": [1], "floor": 0.9}],
    "clamps": [{"to": "previous_token", "heads": [[0, 1]]}],
}
"""Options of a run that is steered and held."""


def tiny_task():
    return make("repeated_tokens", vocab=16, length=16, max_period=6, max_prefix=2)


def tiny_config(**changes):
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_vocab": 17, "n_ctx": 16}
    return interp.TransformerConfig(**sizes, bos_token=16, **changes)


def trained(out, config=None, task=None, **changes):
    return interp.train(config or tiny_config(), task or tiny_task(), out=out, **OPTIONS | changes)


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def untimed(metrics):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in metrics]


class Cancelled(Exception):
    pass


def cancel_at(step):
    def progress(done, total):
        if done >= step:
            raise Cancelled

    return progress
