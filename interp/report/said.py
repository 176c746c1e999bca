"""What is said about attention, asked of the model at hand: numbers that need no stopwatch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attention import AttentionCall, fused
from interp.attention.kernels import scores_of
from interp.hooks import Tap
from interp.report.findings import Findings
from interp.report.roles import roles_of

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS, SEQUENCES = 32, 8
"""Of how many last queries, in how many sequences, the variance of scores is taken."""


@dataclass(frozen=True)
class Said:
    """A statement, and what is so of this model."""

    claim: str
    here: str


def said_of(findings: Findings) -> list[Said]:
    """Each statement that can be checked on this model without a clock."""
    return [_uniform(findings), _variance(findings), _pattern(findings), _cache(findings)] + (
        [] if findings.induction is None else [_induction(findings)]
    )


def said_table(findings: Findings) -> "DataFrame":
    """A row a statement."""
    import pandas

    said = said_of(findings)
    return pandas.DataFrame({"it is said": [s.claim for s in said], "here": [s.here for s in said]})


def _uniform(findings: Findings) -> Said:
    near = findings.statistics.near_uniform()
    n_heads = findings.cut.effect.numel()
    words = [role.word for role in roles_of(findings) if role.near_uniform]
    kinds = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return Said(
        "Many heads are near-uniform, so they do little.",
        f"{len(near)} of {n_heads} heads are near-uniform"
        + (f"; when cut: {kinds}." if near else "."),
    )


def _variance(findings: Findings) -> Said:
    found = score_variances(findings)
    d_head = findings.subject.model.config.head_width
    return Said(
        "Dividing by √d_k brings the variance of scores to 1.",
        f"At d_k = {d_head}, and after training, it is {_number(found.min())} to "
        f"{_number(found.max())} from head to head (median {_number(found.median())}): the claim "
        "is about initial weights.",
    )


@torch.no_grad()
def score_variances(findings: Findings) -> Float[Tensor, "layer head"]:
    """Variance of each head's scores over visible keys, for the last queries of some sequences."""
    found: dict[int, Tensor] = {}

    def watch(call: AttentionCall, tap: Tap) -> Tensor:
        n = call.visible.n_q
        scores = scores_of(call, slice(max(0, n - ROWS), n)).transpose(0, 1).flatten(1)
        found[call.layer] = torch.stack([s[s.isfinite()].var() for s in scores])
        return fused(call)

    subject = findings.subject
    batch = subject.batch[:SEQUENCES]
    subject.model(batch.tokens, mask=batch.mask, kernel=watch)
    return torch.stack([found[layer] for layer in sorted(found)])


def _pattern(findings: Findings) -> Said:
    config, n = findings.subject.model.config, findings.subject.model.config.n_ctx
    each = n * n * 4
    every = each * config.n_heads * config.n_layers
    return Said(
        "The n×n float32 pattern takes 1 MB a head at 512 tokens and 256 MB at 8,192.",
        f"At this model's n_ctx = {n:,} it takes {_size(each)} a head, {_size(every)} for all "
        f"{config.n_heads * config.n_layers} heads of one sequence. The statistics of this report "
        "were computed without it.",
    )


def _cache(findings: Findings) -> Said:
    config = findings.subject.model.config
    element = findings.subject.model.W_E.element_size()
    each = 2 * config.head_width * config.n_layers * element
    now, most = each * config.kv_heads, each * config.n_heads
    return Said(
        "Grouped- and multi-query attention save cache.",
        f"With {config.kv_heads} key/value heads for {config.n_heads} query heads this model "
        f"caches {_size(now)} a token, {_size(now * config.n_ctx)} at n_ctx; multi-head would "
        f"take {_size(most)} a token, multi-query {_size(each)}.",
    )


def _induction(findings: Findings) -> Said:
    about, n_layers = findings.induction, findings.subject.model.config.n_layers
    assert about is not None
    return Said(
        "Induction takes two layers.",
        f"This model has {n_layers} layer{'s' if n_layers != 1 else ''} and {len(about.found)} "
        "induction heads.",
    )


def _number(x: Tensor) -> str:
    return f"{float(x):.2g}"


def _size(n_bytes: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes} bytes"
