"""Attention: masks, positions, kernels, caches, and statistics without the pattern."""

from interp.attention.caches import CACHES, CacheKind, new_cache
from interp.attention.functional import attention
from interp.attention.kernels import AttentionCall, Kernel, attend, fused, materialised
from interp.attention.kv_cache import KVCache
from interp.attention.masks import (
    MASKS,
    WHEN,
    BigBird,
    Causal,
    Full,
    Longformer,
    Rule,
    Streaming,
    Visible,
    Window,
    options_of,
)
from interp.attention.paged_cache import BlockPool, PagedCache
from interp.attention.rolling_cache import RollingCache
from interp.attention.view import AttentionView, TopKeys

__all__ = [
    "CACHES",
    "MASKS",
    "WHEN",
    "AttentionCall",
    "AttentionView",
    "BigBird",
    "BlockPool",
    "CacheKind",
    "Causal",
    "Full",
    "KVCache",
    "Kernel",
    "Longformer",
    "Rule",
    "TopKeys",
    "Streaming",
    "Visible",
    "Window",
    "attend",
    "attention",
    "fused",
    "materialised",
    "new_cache",
    "options_of",
    "PagedCache",
    "RollingCache",
]
