"""The kinds of KV cache by name, and what each is for."""

from collections.abc import Callable, Sequence
from typing import Literal

from interp.attention.kv_cache import KVCache
from interp.attention.masks import Rule
from interp.attention.paged_cache import PagedCache
from interp.attention.rolling_cache import RollingCache

CacheKind = Literal["contiguous", "paged", "rolling"]


def new_cache(kind: CacheKind, rules: Sequence[Rule], *, scales: Sequence[float]) -> KVCache:
    """An empty cache for a model with these rules and scales, one a layer.

    Raises:
        ValueError: There is no such kind.
    """
    if kind not in CACHES:
        raise ValueError(f"a KV cache is one of {', '.join(CACHES)}; got {kind!r}")
    return CACHES[kind](rules, scales)


CACHES: dict[str, Callable[[Sequence[Rule], Sequence[float]], KVCache]] = {
    "contiguous": lambda rules, scales: KVCache(len(rules)),
    "paged": lambda rules, scales: PagedCache(len(rules)),
    "rolling": lambda rules, scales: RollingCache(len(rules), rules=rules, scales=scales),
}
"""Contiguous: one buffer, the default. Paged: forks share prefixes. Rolling: a window, a stream or
attention by features remembers no more than it may see."""
