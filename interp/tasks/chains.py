"""Markov chains: their stationary distribution, and walks along many of them at once."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


class Rows:
    """Distributions to draw from, as one ascending sequence in which row i climbs from i to i + 1.

    One search in it finds the column that a uniform number stands for, for any number of rows.
    In numpy: a walk is hundreds of draws of a few numbers, and calls are what they cost.
    """

    def __init__(self, probabilities: Float[Tensor, "rows V"]) -> None:
        cumulative = probabilities.double().cumsum(-1).numpy()
        cumulative[:, -1] = 1.0  # where the sum is 0.999…
        self.columns = cumulative.shape[1]
        self.ladder = (cumulative + np.arange(len(cumulative))[:, None]).reshape(-1)

    def pick(self, row: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """A column for each of the rows named, by a uniform number from [0, 1) each."""
        # Rounding must not carry a number close to 1 into the next row.
        place = self.ladder.searchsorted(row + uniform * (1 - 2**-30), side="right")
        return place - row * self.columns


def stationary(transitions: Float[Tensor, "*n V V"]) -> Float[Tensor, "*n V"]:
    """The distribution that each chain (rows: from, columns: to) leaves as it is.

    Solves (I − Pᵀ + 1) π = 1, where 1 is all ones: π Pᵀ = π and Σ π = 1 in one.
    """
    size = transitions.shape[-1]
    system = torch.eye(size, dtype=transitions.dtype) - transitions.mT + 1
    return torch.linalg.solve(system, torch.ones_like(transitions[..., 0]))


def walk(
    start: Rows,
    rows: Rows,
    *,
    chain: Int[Tensor, "n"],
    length: int,
    generator: torch.Generator,
    forced: Int[Tensor, "n V"] | None = None,
) -> Int[Tensor, "n length"]:
    """`n` walks, walk i along the chain number `chain[i]`.

    It begins with a draw from that row of `start`; state s is followed by a draw from row s of
    the chain's part of `rows`. Where `forced[i, s]` is not negative, that follows instead.
    """
    which, walks = chain.numpy(), np.arange(len(chain))
    uniform = torch.rand(length, len(chain), generator=generator, dtype=torch.float64).numpy()
    outputs = None if forced is None else forced.numpy()
    states = np.empty((length, len(chain)), dtype=np.int64)
    states[0] = start.pick(which, uniform[0])
    for t in range(1, length):
        here = states[t - 1]
        following = rows.pick(which * rows.columns + here, uniform[t])
        if outputs is not None:
            output = outputs[walks, here]
            following = np.where(output < 0, following, output)
        states[t] = following
    return torch.from_numpy(states.T.copy())
