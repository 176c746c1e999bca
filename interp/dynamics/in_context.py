"""How much context helps: loss by position, its difference, and where models lie by it.

Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

import torch
from jaxtyping import Float
from torch import Tensor


def loss_by_position(losses: Float[Tensor, "batch pos"]) -> Float[Tensor, " pos"]:
    """Mean loss at each position over the examples that have one there (others are NaN), nats."""
    return losses.nanmean(0)


def in_context_learning_score(
    losses: Float[Tensor, "batch pos"], *, early: int = 50, late: int = 500
) -> float:
    """Loss at a late position less that at an early one: negative if context helps, nats.

    Positions count from 0 along `losses`, whose entry t is the loss of predicting token t + 1, as
    `model.loss(tokens, per_token=True)` gives. Olsson et al. 2022 use the 500th and the 50th token.

    Raises:
        ValueError: A position lies outside, or late is not after early.
    """
    n = losses.shape[1]
    if not 0 <= early < late < n:
        raise ValueError(f"wanted 0 ≤ early < late < {n} positions, got {early} and {late}")
    at = loss_by_position(losses)
    return float(at[late] - at[early])


def in_context_score(losses: Float[Tensor, "batch pos"]) -> float:
    """Loss at the end of sequences less that near their beginning, nats: negative if context helps.

    The same score at any length: the mean over positions of the last tenth less that over the
    second tenth, which stand for the 500th and 50th of 512. NaN where nothing is scored in one of
    them.
    """
    at, n = loss_by_position(losses), losses.shape[1]
    tenth = max(1, round(n / 10))
    return float(at[-tenth:].nanmean() - at[tenth : 2 * tenth].nanmean())


def loss_pca(
    losses: Float[Tensor, "model token"], *, n_components: int = 2
) -> tuple[Float[Tensor, "model component"], Float[Tensor, " component"]]:
    """Where snapshots lie by their losses on the same tokens, and the variance each axis explains.

    Every row is a model or a step, every column a token's loss; columns are centred. The signs of
    the axes are set so that the last row is positive.

    Raises:
        ValueError: There are fewer rows than components, or a loss is NaN.

    Source: Olsson et al. 2022, "per-token loss" analysis.
    """
    if len(losses) <= n_components or bool(losses.isnan().any()):
        raise ValueError(
            f"wanted more than {n_components} rows without NaN, got {list(losses.shape)} with "
            f"{int(losses.isnan().sum())} NaN"
        )
    centred = losses.double() - losses.double().mean(0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    placed = (u * s)[:, :n_components]
    sign = torch.where(placed[-1] < 0, -1.0, 1.0)
    share = s.square() / s.square().sum()
    return (placed * sign).float(), share[:n_components].float()
