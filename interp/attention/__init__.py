"""Attention: masks, positions, kernels, caches, and statistics without the pattern."""

from interp.attention.functional import attention
from interp.attention.kernels import AttentionCall, Kernel, attend, fused, materialised
from interp.attention.kv_cache import KVCache
from interp.attention.masks import MASKS, Causal, Full, Rule, Visible, Window
from interp.attention.view import AttentionView, TopKeys

__all__ = [
    "MASKS",
    "AttentionCall",
    "AttentionView",
    "Causal",
    "Full",
    "KVCache",
    "Kernel",
    "Rule",
    "TopKeys",
    "Visible",
    "Window",
    "attend",
    "attention",
    "fused",
    "materialised",
]
