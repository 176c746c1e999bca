"""Whether a head raises the logit of what it attends to, on its direct path to the logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Candidates:
    """Rows of a batch, the token that each should say, and the tokens it is measured against.

    Attributes:
        rows: Slots of the rows, [R].
        answer: Which of the candidates is the answer, [B R].
        tokens: The candidates of each example: the tokens of its block, [B C].
    """

    rows: Int[Tensor, " row"]
    answer: Int[Tensor, "batch row"]
    tokens: Int[Tensor, "batch candidate"]


def copying(
    z: Float[Tensor, "batch pos head d_head"],
    W_O: Float[Tensor, "head d_head d_model"],
    *,
    readout: Float[Tensor, "d_model vocab"],
    among: Candidates,
) -> Float[Tensor, "batch head"]:
    """How a head ranks the token that it attends to among the sequence's tokens, from −1 to 1.

    1: its write raises that token's logit above those of all others; −1: below all others; 0: it
    makes no difference. Averaged over the rows of each example. Ranks do not depend on the final
    norm's scale.

    Source: the copying evaluator of Olsson et al. 2022, which has shares of raised logits in the
    place of ranks.
    """
    wide = torch.promote_types(z.dtype, torch.float32)
    written = torch.einsum("brhe,hed->brhd", z[:, among.rows].to(wide), W_O.to(wide))
    columns = readout.to(wide).T[among.tokens]  # [B C D]
    logits = torch.einsum("brhd,bcd->bhrc", written, columns)
    index = among.answer[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
    said = logits.gather(3, index)
    # Logits that differ by rounding alone are ties.
    slack = 1e-5 * logits.abs().amax(-1, keepdim=True)
    above, below = (said - logits > slack).sum(-1), (logits - said > slack).sum(-1)
    return ((above - below).to(wide) / (logits.shape[-1] - 1)).mean(-1)


def readout(model: Any) -> Float[Tensor, "d_model vocab"]:
    """The unembedding with the final norm's gain, and centring where that norm centres."""
    norm, W_U = model.ln_final, model.W_U
    W = W_U if norm.weight is None else norm.weight.detach()[:, None] * W_U
    return W - W.mean(0, keepdim=True) if norm.kind.startswith("layer") else W


def candidates(
    tokens: Int[Tensor, "batch pos"], *, start: int, period: int, rows: Sequence[int]
) -> Candidates:
    """For a repeated block that starts at `start`: its tokens, and what follows each row."""
    chosen = torch.tensor(list(rows), device=tokens.device)
    following = (chosen + 1 - start) % period
    answer = following.expand(tokens.shape[0], -1)
    return Candidates(chosen, answer, tokens[:, start : start + period])
