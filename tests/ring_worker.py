"""What each process of the ring tests runs."""

import os
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist

from interp.attention.ring import ring_attention, ring_moments
from interp.attention.sharding import Ring, shard

LENGTH = 48
CASES = [(causal, kv_heads) for causal in (True, False) for kv_heads in (4, 2)]


def inputs(kv_heads, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 4, LENGTH, 8), (2, kv_heads, LENGTH, 8), (2, kv_heads, LENGTH, 6)]
    drawn = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [x.to(dtype) for x in drawn]


def loss_weights():
    return torch.randn(2, 4, LENGTH, 6, generator=torch.Generator().manual_seed(1)).double()


def main(rank, size, folder):
    """Run all cases on rings of `size` and of 2, then let the last process vanish."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    pair = dist.new_group([0, 1])
    _save(folder, f"{size}-{rank}", _cases(Ring.of()))
    if rank < 2:
        _save(folder, f"2-{rank}", _cases(Ring.of(pair)))
    dist.barrier()
    if rank == size - 1:
        os._exit(1)  # as if killed
    try:
        ring_attention(*(shard(x, Ring.of()) for x in inputs(2)), Ring.of(timeout=20))
    except ConnectionError as error:
        Path(folder, f"lost-{rank}").write_text(str(error))
        os._exit(0)


def _cases(ring):
    found = []
    for causal, kv_heads in CASES:
        q, k, v = (shard(x, ring).requires_grad_() for x in inputs(kv_heads))
        z = ring_attention(q, k, v, ring, causal=causal)
        gradients = torch.autograd.grad(z, (q, k, v), shard(loss_weights(), ring))
        moments = ring_moments(q, k, [v], ring, causal=causal)
        narrow = [shard(x, ring) for x in inputs(kv_heads, torch.bfloat16)]
        found.append(
            {
                "z": z.detach(),
                "gradients": gradients,
                "log_sum_exp": moments.log_sum_exp,
                "entropy": moments.entropy,
                "mean": moments.mixed[0],
                "bfloat16": ring_attention(*narrow, ring, causal=causal),
            }
        )
    return found


def _save(folder, name, found):
    torch.save(found, Path(folder, name))
