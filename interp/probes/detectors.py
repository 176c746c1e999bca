"""What a pattern that is at hand attends to: the token before, copies of the token, what followed.

Each score is the attention on *all* keys of the kind, averaged over the rows that have one. A
perfect head scores 1; a head at chance what a uniform one has there; no such row gives NaN.
`head_statistics` has the same scores without the pattern.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.probes.entropies import checked_rows, refuse_scores, refuse_unseen, visible_in
from interp.probes.rows import after_earlier_same, check_ids, counted_rows, earlier_same


def induction_score(
    pattern: Float[Tensor, "batch head q k"],
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, " head"]:
    """Attention from a token to those that followed its earlier occurrences.

    A previous-token head and a duplicate-token head score 0 on sequences whose period is 3 or
    more.

    Args:
        pattern: Square, over these tokens.
        tokens: Token ids.
        mask: True for real tokens; pads are neither rows nor keys.
        rows: Which rows count; None: all real ones. (Rows of BOS, which is its own kind of
            repeat, are best left out.)

    Raises:
        ValueError: In every row with a target, the previous token is one: then a previous-token
            head would score 1 (a period of 1 or 2). Or shapes do not fit.

    Source: Olsson et al. 2022, "In-context Learning and Induction Heads"; here over every row
    with an earlier occurrence, not the second half of a repeated sequence alone.
    """
    target = after_earlier_same(tokens, mask)
    refuse_ambiguous(target, counted_rows(tokens, mask=mask, rows=rows))
    return _score(pattern, target, tokens, mask, rows)


def duplicate_token_score(
    pattern: Float[Tensor, "batch head q k"],
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, " head"]:
    """Attention from a token to its earlier occurrences, all of them.

    Source: Wang et al. 2022, "Interpretability in the Wild".
    """
    return _score(pattern, earlier_same(tokens, mask), tokens, mask, rows)


def previous_token_score(
    pattern: Float[Tensor, "batch head q k"],
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, " head"]:
    """Attention to the real token right before, in rows that have one."""
    return _score(pattern, at_distance(tokens, 1, mask), tokens, mask, rows)


def sink_score(
    pattern: Float[Tensor, "batch head q k"],
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    rows: Bool[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, " head"]:
    """Attention to the first real token, in all rows but its own.

    Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks".
    """
    return _score(pattern, first_key(tokens, mask), tokens, mask, rows)


def at_distance(
    tokens: Int[Tensor, "batch pos"], back: int, mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch q k"]:
    """Whether a key is `back` real tokens before the query."""
    check_ids(tokens)
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    pos = real.long().cumsum(-1)
    pairs = real[:, :, None] & real[:, None, :]
    return (pos[:, :, None] - pos[:, None, :] == back) & pairs


def first_key(
    tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch q k"]:
    """Whether a key is the first real token, for the rows after it."""
    check_ids(tokens)
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    pos = real.long().cumsum(-1)
    return ((pos == 1) & real)[:, None, :] & ((pos > 1) & real)[:, :, None]


def _score(
    pattern: Tensor,
    target: Bool[Tensor, "batch q k"],
    tokens: Tensor,
    mask: Tensor | None,
    rows: Tensor | None,
) -> Float[Tensor, " head"]:
    n = tokens.shape[1]
    if pattern.dim() != 4 or pattern.shape[0] != tokens.shape[0] or pattern.shape[2:] != (n, n):
        raise ValueError(
            f"wanted a square pattern [B H T T] over tokens {list(tokens.shape)}, "
            f"got {list(pattern.shape)}"
        )
    counted = checked_rows(counted_rows(tokens, mask=mask, rows=rows), pattern)
    refuse_scores(pattern, counted[:, None])
    refuse_unseen(pattern, visible_in(pattern, mask=mask, causal=False), counted[:, None])
    return row_shares(pattern, target, counted).transpose(0, 1).flatten(1).nanmean(-1)


def row_shares(
    pattern: Float[Tensor, "batch head q k"],
    target: Bool[Tensor, "batch q k"],
    counted: Bool[Tensor, "batch q"],
) -> Float[Tensor, "batch head q"]:
    """Each row's attention on its targets; NaN where it has none, or does not count."""
    wide = torch.promote_types(pattern.dtype, torch.float32)
    share = torch.einsum("bhqk,bqk->bhq", pattern.to(wide), target.to(wide))
    return share.masked_fill(~(counted & target.any(-1))[:, None], float("nan"))


def refuse_ambiguous(target: Bool[Tensor, "batch q k"], counted: Bool[Tensor, "batch q"]) -> None:
    """Refuse sequences on which looking one token back is the same as induction.

    Raises:
        ValueError: Every counted row that has a target has the previous token among them.
    """
    asked = counted & target.any(-1)
    before = torch.diagonal(target, offset=-1, dim1=1, dim2=2)  # row i, key i − 1; from row 1 on
    before = torch.nn.functional.pad(before, (1, 0))
    itself = torch.diagonal(target, dim1=1, dim2=2) & (target.sum(-1) == 1)
    if bool(asked.any()) and bool((before | itself)[asked].all()):
        raise ValueError(
            "in every row that has an induction target the previous token is one, so a "
            "previous-token head would score 1 as well: give sequences whose period is at least 3"
        )
