"""How spread out a pattern that is at hand is, over the keys that its rows may see.

Without the pattern, at any length: `interp.attention.AttentionView`.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def entropy(
    pattern: Float[Tensor, "batch head q k"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    causal: bool = True,
    normalized: bool = True,
    rows: Bool[Tensor, "batch q"] | None = None,
) -> Float[Tensor, "batch head"]:
    """Mean entropy of each head's rows: in nats, or divided by the log of the keys they may see.

    Normalised, a uniform head scores 1 and a one-hot head 0, at any length and with any padding.

    Args:
        pattern: Rows that sum to one over the keys.
        mask: True for a real token [B T], where queries and keys are the same tokens; or True
            where a query may see a key, anything with four axes that broadcasts to [B H Tq Tk].
        causal: Aligned at the bottom right: the last query sees all keys.
        normalized: In shares of the log of the number of visible keys; a row that may see at most
            one has none and is left out. In nats, only a row that sees nothing is left out.
        rows: Which rows count; None: all.

    Returns:
        NaN for a head without a row that counts.

    Raises:
        TypeError: `mask` or `rows` are not bools.
        ValueError: A row that counts is no distribution, or has weight on a key that it may not
            see.
    """
    seen = visible_in(pattern, mask=mask, causal=causal)
    count = seen.sum(-1).expand(pattern.shape[:3])
    counted = count > (1 if normalized else 0)
    if rows is not None:
        counted = counted & checked_rows(rows, pattern)[:, None]
    refuse_scores(pattern, counted)
    refuse_unseen(pattern, seen, counted)
    found = row_entropy(pattern)
    if normalized:
        found = found / count.clamp(min=2).to(found.dtype).log()
    return found.masked_fill(~counted, float("nan")).nanmean(-1).to(_wide(pattern))


def row_entropy(pattern: Float[Tensor, "*batch q k"]) -> Float[Tensor, "*batch q"]:
    """−Σ p log p of each row in nats, in float32 or better; 0·log 0 is 0."""
    p = pattern.to(_wide(pattern))
    return -(p * p.where(p > 0, 1.0).log()).sum(-1)  # xlogy's gradient is infinite at 0


def _wide(pattern: Tensor) -> torch.dtype:
    return torch.promote_types(pattern.dtype, torch.float32)


def visible_in(
    pattern: Float[Tensor, "batch head q k"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = True,
) -> Bool[Tensor, "b h q k"]:
    """Which keys the rows of a pattern may see.

    Raises:
        TypeError: The mask is not of bools, or the pattern no tensor.
        ValueError: The pattern or the mask has other axes.
    """
    if not isinstance(pattern, Tensor):
        raise TypeError(f"wanted a pattern [B H Tq Tk], got {type(pattern).__name__}")
    if pattern.dim() != 4 or not pattern.is_floating_point():
        raise ValueError(
            f"wanted a pattern [B H Tq Tk] of floats, got {pattern.dtype} {list(pattern.shape)}"
        )
    batch, _, n_q, n_k = pattern.shape
    seen = torch.ones(1, 1, n_q, n_k, dtype=torch.bool, device=pattern.device)
    seen = seen.tril(n_k - n_q) if causal else seen
    if mask is None:
        return seen
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be bools (True = real, or may see), got {mask.dtype}")
    if mask.dim() == 4:
        return seen & mask
    if mask.shape == (batch, n_k) and n_q == n_k:
        return seen & mask[:, None, None, :] & mask[:, None, :, None]
    raise ValueError(
        f"mask must be [B T] = {[batch, n_k]} for a square pattern, or have four axes; "
        f"got {list(mask.shape)}"
    )


def checked_rows(rows: Bool[Tensor, "batch q"], pattern: Tensor) -> Bool[Tensor, "batch q"]:
    """The rows that count, if they are those of this pattern.

    Raises:
        TypeError: They are not bools.
        ValueError: They have another shape.
    """
    wanted = (pattern.shape[0], pattern.shape[2])
    if rows.dtype != torch.bool:
        raise TypeError(f"rows must be bools, got {rows.dtype}")
    if rows.shape != wanted:
        raise ValueError(f"rows must be [B Tq] = {list(wanted)}, got {list(rows.shape)}")
    return rows


def refuse_unseen(
    pattern: Float[Tensor, "batch head q k"],
    seen: Bool[Tensor, "b h q k"],
    counted: Bool[Tensor, "batch h q"],
    tolerance: float = 1e-4,
) -> None:
    """Refuse a pattern with weight where its counted rows may not look.

    Raises:
        ValueError: There is more than `tolerance` on such keys.
    """
    stray = pattern.masked_fill(seen, 0.0).abs().sum(-1).masked_fill(~counted, 0.0)
    if stray.numel() and bool((stray > tolerance).any()):
        b, h, q = (int(i) for i in (stray == stray.max()).nonzero()[0])
        raise ValueError(
            f"row {q} of head {h} in example {b} has {float(stray.max()):.3g} of its attention on "
            "keys that it may not see; give the mask that it was computed with (causal=False for "
            "a head that sees all), or leave the row out with `rows`"
        )


def refuse_scores(
    pattern: Float[Tensor, "batch head q k"], counted: Bool[Tensor, "batch h q"]
) -> None:
    """Refuse what is no pattern in its counted rows, such as scores before the softmax.

    Raises:
        ValueError: A weight is below 0, or a row sums to more than 1.
    """
    rows = pattern.to(_wide(pattern))
    odd = ((rows < 0).any(-1) | (rows.sum(-1) > 1.05)) & counted  # 16 bits round a row's sum
    if bool(odd.any()):
        b, h, q = (int(i) for i in odd.nonzero()[0])
        raise ValueError(
            f"a pattern's weights are at least 0 and sum to 1; row {q} of head {h} in example {b} "
            f"has {float(rows[b, h, q].min()):.3g} at least and sums to "
            f"{float(rows[b, h, q].sum()):.3g}: for scores, take scores.softmax(-1)"
        )
