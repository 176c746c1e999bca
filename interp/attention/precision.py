"""Attention whose scores and softmax are computed in a narrower type, to see what that costs.

Fused kernels, and our own routes, accumulate scores in float32 whatever comes in. In bfloat16 a
score of 10 is known to ±0.03, so a weight to ±3 %; in float16 to ±0.004, and scores beyond 65,504
are infinite.
"""

import torch
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head, without_junk
from interp.attention.kernels import Kernel, softmax
from interp.hooks import Tap


def scores_in(dtype: torch.dtype) -> Kernel:
    """A kernel for `model(tokens, kernel=…)` that computes scores and softmax in `dtype`."""

    def kernel(call: AttentionCall, tap: Tap) -> Tensor:
        if call.bias is not None or call.soft_cap is not None or call.sink is not None:
            raise ValueError(
                "scores_in takes plain scores: neither ALiBi nor a soft cap nor a sink"
            )
        call = without_junk(call)
        heads = call.q.shape[1]
        q, k, v = (x.to(dtype) for x in (call.q, call.k, call.v))
        scores = q @ per_query_head(k, heads).mT * call.scale
        scores = scores.masked_fill(~call.visible.grid(), float("-inf"))
        pattern = softmax(tap("hook_attn_scores", scores), tap)
        return (pattern @ per_query_head(v, heads)).to(call.v.dtype)

    return kernel
