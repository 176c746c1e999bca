"""Ring attention: merging is exact, and real processes find what one process finds."""

import pytest
import torch
from torch import multiprocessing

from interp.attention import AttentionView, attention
from interp.attention.functional import call_of
from interp.attention.lse import Fused, run
from interp.attention.merging import Merged, merge
from interp.attention.ring import ring_attention, ring_moments
from interp.attention.sharding import Ring, shard, unshard
from tests import ring_worker


def drawn(n=24, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, n, 8, generator=generator, dtype=dtype) for _ in range(3)]


def parts_of(q, k, v, cuts):
    for keys in torch.arange(k.shape[2]).tensor_split(cuts):
        call = call_of(q, k[:, :, keys], v[:, :, keys], mask=None, causal=False, scale=None)
        yield run(call, [v[:, :, keys]], energy=True, memory=1 << 20)


@pytest.mark.parametrize("cuts", [[12], [1, 2, 20], [5, 10, 15]])
@pytest.mark.parametrize("backwards", [False, True])
def test_merging_depends_neither_on_the_parts_nor_on_their_order(cuts, backwards):
    q, k, v = drawn()
    found = Merged.nothing(q, [8], energy=True)
    parts = list(parts_of(q, k, v, cuts))
    for part in parts[::-1] if backwards else parts:
        merge(found, slice(None), part)
    view = AttentionView(q, k, causal=False)
    expected = attention(q, k, v, causal=False)
    torch.testing.assert_close(found.mixed[0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.log_sum_exp, view.log_sum_exp(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.entropy, view.entropy(), rtol=1e-11, atol=1e-11)


def test_a_part_that_saw_nothing_changes_nothing():
    q, k, v = drawn()
    found, empty = Merged.nothing(q, [8], energy=True), Merged.nothing(q, [8], energy=True)
    nothing = Fused(empty.log_sum_exp, empty.energy, empty.mixed)
    merge(found, slice(None), nothing)
    assert (found.log_sum_exp == float("-inf")).all()
    assert (found.entropy == 0).all()
    (part,) = parts_of(q, k, v, [])
    merge(found, slice(None), part)
    before = found.mixed[0].clone()
    merge(found, slice(None), nothing)
    assert torch.equal(found.mixed[0], before)
    assert torch.equal(found.log_sum_exp, part.log_sum_exp)


@pytest.mark.parametrize("causal", [True, False])
def test_a_ring_of_one_is_plain_attention(causal):
    inputs = [x.requires_grad_() for x in drawn()]
    z, expected = (
        ring_attention(*inputs, Ring.of(), causal=causal),
        attention(*inputs, causal=causal),
    )
    torch.testing.assert_close(z, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(z.sin().sum(), inputs),
        torch.autograd.grad(expected.sin().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_make_the_whole_again_and_share_the_work(size):
    x = torch.arange(12 * size)[None, None, :, None]
    parts = [shard(x, Ring(rank, size)) for rank in range(size)]
    assert torch.equal(unshard(parts), x)
    pairs = [int((part + 1).sum()) for part in parts]  # keys that a causal mask shows
    assert len(set(pairs)) == 1


def test_what_cannot_be_sharded_is_refused():
    q, k, v = drawn(10)
    with pytest.raises(ValueError, match="8 equal chunks; 10 tokens"):
        shard(q, Ring(0, 4))
    with pytest.raises(ValueError, match="as many queries as keys"):
        ring_attention(q[:, :, :4], k, v, Ring.of())
    with pytest.raises(ValueError, match="energy=True"):
        _ = Merged.nothing(q, [8], energy=False).entropy


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """A folder with what four real processes found, alone as a ring, and two of them."""
    folder, context = tmp_path_factory.mktemp("ring"), multiprocessing.get_context("spawn")
    started = [
        context.Process(target=ring_worker.main, args=(rank, 4, str(folder))) for rank in range(4)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    codes = [process.exitcode for process in started]
    for process in started:
        process.kill()
    return folder, codes


@pytest.mark.parametrize("size", [2, 4])
def test_real_processes_find_what_one_process_finds(processes, size):
    folder, _ = processes
    ranks = [torch.load(folder / f"{size}-{rank}") for rank in range(size)]
    for case, (causal, kv_heads) in enumerate(ring_worker.CASES):
        found = [rank[case] for rank in ranks]
        q, k, v = inputs = [x.requires_grad_() for x in ring_worker.inputs(kv_heads)]
        z, view = attention(q, k, v, causal=causal), AttentionView(q, k, causal=causal)
        expected = {"z": z, "mean": z, "log_sum_exp": view.log_sum_exp(), "entropy": view.entropy()}
        for name, whole in expected.items():
            ours = unshard([part[name] for part in found])
            torch.testing.assert_close(ours, whole.detach(), rtol=1e-10, atol=1e-10)
        gradients = torch.autograd.grad(z, inputs, ring_worker.loss_weights())
        for n, whole in enumerate(gradients):
            ours = unshard([part["gradients"][n] for part in found])
            torch.testing.assert_close(ours, whole, rtol=1e-10, atol=1e-10)
        narrow = unshard([part["bfloat16"] for part in found])
        assert narrow.dtype == torch.bfloat16
        torch.testing.assert_close(narrow.double(), z.detach(), rtol=2e-2, atol=2e-2)


def test_a_lost_process_ends_the_others_with_a_clear_error(processes):
    folder, codes = processes
    assert codes == [0, 0, 0, 1]  # all ended by themselves
    for rank in range(3):
        assert f"process {rank} lost process" in (folder / f"lost-{rank}").read_text()


def test_moments_of_a_ring_of_one_are_detached():
    q, k, v = (x.requires_grad_() for x in drawn())
    assert not ring_moments(q, k, [v], Ring.of()).entropy.requires_grad
