"""The weight on every earlier match of a token, without comparing each with each.

Positions of equal tokens are sorted into groups. Where there are few pairs, they are taken one by
one; else a group is an attention call of its own, whose log-sum-exp less that of the whole row is
the log of the share that the matches have.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import AttentionCall, AttentionView, Causal, Full, Rule, Visible
from interp.attention.features import Featured
from interp.probes.matches import Matches
from interp.probes.pairwise import Flat, example_of, pair_by_pair, positions
from interp.probes.rows import Bucket


@dataclass(frozen=True)
class Earlier:
    """What a rule lets see, and at least `back` tokens back."""

    rule: Rule
    back: int

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True where the rule agrees and the key is far enough back."""
        return self.rule(q_pos, k_pos) & (k_pos <= q_pos - self.back)

    def count(self, q_pos: Tensor, n_keys: Tensor) -> Tensor:
        """At most as many as the rule says: the keys of a group have gaps between them."""
        return self.rule.count(q_pos, n_keys)


@dataclass(frozen=True)
class EarlierFeatured(Featured):
    """The same, of a rule whose weights are products of features."""

    rule: Featured = field(default_factory=Featured)
    back: int = 0

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """True where the rule agrees and the key is far enough back."""
        return Earlier(self.rule, self.back)(q_pos, k_pos)

    @property
    def positive(self) -> bool:
        """As the rule's."""
        return self.rule.positive

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        """As the rule's."""
        return self.rule.of_queries(q, scale)

    def of_keys(self, k: Tensor, scale: float) -> Tensor:
        """As the rule's."""
        return self.rule.of_keys(k, scale)


def _earlier(rule: Rule, back: int) -> Rule:
    return (
        EarlierFeatured(rule=rule, back=back) if isinstance(rule, Featured) else Earlier(rule, back)
    )


def match_weights(
    call: AttentionCall,
    log_sum_exp: Float[Tensor, "batch head q"],
    matches: Matches,
    *,
    memory: int,
    largest: bool = True,
) -> tuple[Float[Tensor, "batch head q"], Float[Tensor, "batch head q"]]:
    """The summed weight on all earlier occurrences of each token, and on the keys after them.

    NaN for a row that can see none. The queries of the call are its keys' slots.
    """
    flat = Flat(_by_slot(call.q), _by_slot(call.k), log_sum_exp.transpose(1, 2).flatten(0, 1))
    found = pair_by_pair(call, flat, matches, memory=memory)
    size = call.q.shape[1] * call.q.shape[3] * call.q.element_size()
    for bucket in (*matches.buckets, *(matches.largest if largest else ())):
        for part in _parts(bucket, max(1, memory // (6 * size * bucket.slots.shape[1]))):
            rows, own = part.slots[:, 1:], part.real[:, 1:]
            q = _taken(flat.q, rows)
            for after, out in enumerate(found):
                keys = matches.after[part.slots[:, :-1]] if after else part.slots[:, :-1]
                at = _Places(rows, keys, own, back=1 - after)
                group = _group(call, q, _taken(flat.k, keys), at)
                level = AttentionView.of(group, memory=memory).log_sum_exp().transpose(1, 2)
                share = (level - flat.log_sum_exp[rows]).exp().clamp(max=1.0)
                out[rows[own]] = torch.where(level == float("-inf"), torch.nan, share)[own]
    shape = (call.q.shape[0], call.q.shape[2], call.q.shape[1])
    return found[0].view(shape).transpose(1, 2), found[1].view(shape).transpose(1, 2)


def _by_slot(x: Float[Tensor, "batch head pos d"]) -> Float[Tensor, "slot head d"]:
    return x.transpose(1, 2).flatten(0, 1)


def _parts(bucket: Bucket, step: int) -> Iterator[Bucket]:
    for start in range(0, len(bucket.slots), step):
        some = slice(start, start + step)
        yield Bucket(bucket.slots[some], bucket.real[some])


@dataclass(frozen=True)
class _Places:
    """Flat slots of the rows and keys of some groups.

    Attributes:
        rows: The later tokens, [G R].
        keys: What they are matched with, [G R]: row r with 0 … r.
        own: False behind a group's end.
        back: How far a key is from its row at least.
    """

    rows: Int[Tensor, "group place"]
    keys: Int[Tensor, "group place"]
    own: Bool[Tensor, "group place"]
    back: int


def _group(call: AttentionCall, q: Tensor, k: Tensor, at: _Places) -> AttentionCall:
    """The attention of a token to its matches."""
    place = torch.arange(q.shape[2], device=q.device)[None]
    ordered = _in_order(call.visible.rule)
    if ordered is not None and call.visible.extra is None and call.bias is None:
        # In a group's own order causality is a square, and what fills up its end is never seen.
        return replace(call, q=q, k=k, v=k, visible=Visible(ordered, place, place))
    n, visible = call.q.shape[2], call.visible
    q_pos, k_pos = positions(visible.q_pos, at.rows, n), positions(visible.k_pos, at.keys, n)
    rule = Earlier(visible.rule, at.back)
    extra = None if visible.extra is None else _pairs_of(visible.extra, at.rows, at.keys, n)
    real = Visible(rule, q_pos, k_pos, at.own, at.own, extra, in_order=False)
    return replace(call, q=q, k=k, v=k, visible=real)


def _in_order(rule: Rule) -> Rule | None:
    """What remains of a rule among keys before the query, if places say it; else None."""
    if isinstance(rule, Causal | Full):
        return Causal()
    return replace(rule, causal=True) if isinstance(rule, Featured) else None


def _taken(x: Tensor, slots: Int[Tensor, "group place"]) -> Float[Tensor, "group head place d"]:
    return x.index_select(0, slots.flatten()).unflatten(0, slots.shape).transpose(1, 2)


def _pairs_of(extra: Tensor, rows: Tensor, keys: Tensor, n: int) -> Bool[Tensor, "g h q k"]:
    example, q, k = example_of(extra, rows[:, :1], n)[..., None], rows[:, :, None] % n, keys % n
    q = q if extra.shape[2] > 1 else torch.zeros_like(q)
    return extra.transpose(0, 1)[:, example, q, k[:, None, :]].transpose(0, 1)
