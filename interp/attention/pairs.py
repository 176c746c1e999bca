"""Single weights of a pattern: one key for each query, by its slot or by its position."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention.call import AttentionCall, per_query_head
from interp.attention.features import Featured
from interp.attention.masks import Full, Visible


def key_at_position(visible: Visible, positions: Int[Tensor, "b q"]) -> Int[Tensor, "batch q"]:
    """The slot of the real key at some positions (indices among the real ones); −1 for none."""
    real = visible.real_k
    batch = max(positions.shape[0], visible.k_pos.shape[0], 1 if real is None else real.shape[0])
    k_pos = visible.k_pos.expand(batch, -1)
    size = visible.n_k + 1  # the last place is for pads, and for positions that there are not
    at = k_pos.clamp(0, size - 1) if real is None else k_pos.masked_fill(~real, size - 1)
    table = k_pos.new_full((batch, size), -1)
    table.scatter_(1, at, torch.arange(visible.n_k, device=at.device).expand_as(at))
    table[:, -1] = -1
    wanted = positions.expand(batch, -1)
    return table.gather(1, torch.where(wanted < 0, size - 1, wanted.clamp(max=size - 1)))


def weights_at(
    call: AttentionCall,
    key_index: Int[Tensor, "*#batch q"],
    log_sum_exp: Float[Tensor, "batch head q"],
    *,
    unseen: float = 0.0,
) -> Float[Tensor, "batch head q"]:
    """exp(s − L) of one key for each query; NaN where its index is −1.

    Raises:
        TypeError: The indices are no tensor.
        ValueError: An index is outside of the keys, or the shape fits no query.
    """
    index = _checked(key_index, call)
    at = index.clamp(min=0)
    seen = pairs_seen(call.visible, at)
    # Where nothing is to be said, the exponent is made 0: its gradient stays finite.
    exponent = pair_scores(call, at) - log_sum_exp
    weight = torch.where(seen & (log_sum_exp != float("-inf")), exponent, 0.0).exp().clamp(max=1.0)
    return torch.where(seen, weight, unseen).masked_fill(index < 0, float("nan"))


def _checked(key_index: Tensor, call: AttentionCall) -> Int[Tensor, "b h q"]:
    n_q, n_k = call.visible.n_q, call.visible.n_k
    if not isinstance(key_index, Tensor):
        got = type(key_index).__name__
        raise TypeError(f"wanted a tensor with a key for each query, got {got}; use torch.tensor")
    index = key_index
    if index.dim() == 1:
        index = index[None, None]
    elif index.dim() == 2:
        index = index[:, None]
    fits = index.dim() == 3 and index.shape[2] == n_q
    fits = (
        fits and index.shape[0] in (1, call.q.shape[0]) and index.shape[1] in (1, call.q.shape[1])
    )
    if not fits or index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(
            f"wanted a key for each query: integers [Tq], [B Tq] or [B H Tq] with Tq = {n_q}; "
            f"got {key_index.dtype} {list(key_index.shape)}"
        )
    if index.numel() and not (int(index.min()) >= -1 and int(index.max()) < n_k):
        raise ValueError(
            f"key indices must be from 0 to {n_k - 1}, or -1 for none; "
            f"got {int(index.min())} to {int(index.max())}"
        )
    return index.long()


def pairs_seen(visible: Visible, at: Int[Tensor, "b h q"]) -> Bool[Tensor, "b h q"]:
    """Whether each query may see the key that is named for it."""
    q_pos, k_pos, real = visible.q_pos, visible.k_pos, visible.real_k
    key = _per_row(k_pos, at)
    seen = visible.rule(
        q_pos[:, None, :, None, None].expand(*key.shape, 1, 1), key[..., None, None]
    )
    seen = seen[..., 0, 0]
    if visible.real_q is not None:
        seen = seen & visible.real_q[:, None]
    if real is not None:
        seen = seen & _per_row(real, at)
    extra = visible.extra
    if extra is None:
        return seen
    batch, heads = max(extra.shape[0], at.shape[0]), max(extra.shape[1], at.shape[1])
    grid = extra.expand(batch, heads, visible.n_q, -1)
    return seen & grid.gather(3, at.expand(batch, heads, -1)[..., None])[..., 0]


def _per_row(x: Tensor, at: Int[Tensor, "b h q"]) -> Tensor:
    """What x [b k] is at slots [b h q]."""
    batch = max(x.shape[0], at.shape[0])
    x, at = x.expand(batch, -1), at.expand(batch, -1, -1)
    return x[:, None].expand(-1, at.shape[1], -1).gather(2, at)


def pair_scores(call: AttentionCall, at: Int[Tensor, "b h q"]) -> Float[Tensor, "batch head q"]:
    """The score of each query with the key that is named for it, whether it may see it or not."""
    if isinstance(call.visible.rule, Featured):
        return _log_of_features(call, call.visible.rule, at)
    k = _keys_at(call, at)
    q = call.q.unflatten(1, (k.shape[1], -1))
    scores = (q * k[:, :, None]).sum(-1).flatten(1, 2) * call.scale
    if call.soft_cap is not None:
        scores = call.soft_cap * torch.tanh(scores / call.soft_cap)
    return scores if call.bias is None else scores + _pair_bias(call, at)


def _keys_at(call: AttentionCall, at: Int[Tensor, "b h q"]) -> Float[Tensor, "batch h q d_head"]:
    """One key a query; where heads share the index, whole rows are copied, which is faster."""
    k, heads = call.k, call.q.shape[1]
    if at.shape[:2] == (1, 1):
        return k.transpose(1, 2).index_select(1, at[0, 0]).transpose(1, 2)
    if at.shape[1] == 1:
        example = torch.arange(k.shape[0], device=k.device)[:, None]
        return k.transpose(1, 2)[example, at[:, 0]].transpose(1, 2)
    k = per_query_head(k, heads)
    return k.gather(2, at.expand(k.shape[0], -1, -1)[..., None].expand(-1, -1, -1, k.shape[3]))


def _log_of_features(
    call: AttentionCall, rule: Featured, at: Int[Tensor, "b h q"]
) -> Float[Tensor, "batch head q"]:
    q, k = rule.of_queries(call.q, call.scale), rule.of_keys(call.k, call.scale)
    visible = replace(call.visible, rule=Full())
    products = pair_scores(replace(call, q=q, k=k, scale=1.0, visible=visible), at)
    return products.clamp(min=torch.finfo(products.dtype).tiny).log()


def _pair_bias(call: AttentionCall, at: Int[Tensor, "b h q"]) -> Float[Tensor, "b h q"]:
    assert call.bias is not None
    key = _per_row(call.visible.k_pos, at)
    query = call.visible.q_pos[:, None].expand(key.shape[0], key.shape[1], -1)
    # Every pair is an example of its own, with one query and one key: no n×n grid of biases.
    bias = call.bias(query.reshape(-1, 1), key.reshape(-1, 1))[:, :, 0, 0]
    bias = bias.view(*key.shape, -1)
    if bias.shape[-1] == 1:
        return bias[..., 0]
    if key.shape[1] == 1:
        return bias[:, 0].transpose(1, 2)
    return bias.diagonal(dim1=1, dim2=3).transpose(1, 2)
