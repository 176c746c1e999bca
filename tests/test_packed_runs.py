"""How layers are run: which heads at a time, and what all layers share."""

import pytest
import torch

from interp import probes
from interp.attention import lse
from tests.test_probes_heads import small


def test_padding_is_sorted_out_once_for_all_layers(monkeypatch, generator):
    model, sorts, argsort = small(n_layers=3), [], torch.Tensor.argsort
    tokens, mask = torch.randint(0, 12, (2, 30), generator=generator), torch.ones(2, 30).bool()
    mask[0, :5] = False

    def counted(x, *args, **how):
        sorts.append(x.shape)
        return argsort(x, *args, **how)

    monkeypatch.setattr(torch.Tensor, "argsort", counted)
    model(tokens, mask=mask)
    assert len(sorts) == 2  # there and back


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_no_head_of_a_long_layer_is_shared_by_two_threads(threads, monkeypatch, generator):
    model, at_once = small(n_heads=8), []
    tokens = torch.randint(0, 12, (1, 60), generator=generator)
    whole = probes.head_statistics(model, tokens)
    kernel = lse._flash_cpu

    def spied(q, *rest):
        at_once.extend([q.shape[1]] if q.shape[-1] == 9 else [])  # keys, values and positions
        return kernel(q, *rest)

    monkeypatch.setattr(lse, "_flash_cpu", spied)
    monkeypatch.setattr(lse, "CHUNK", 5 * 3 * 60 * 9 * 4)  # five heads of a packed run
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    few = probes.head_statistics(model, tokens)
    assert at_once == 2 * {1: [5, 3], 2: [4, 4], 3: [3, 3, 2]}[threads]  # of two layers
    for name in ("entropy", "mean_distance", "write_norm"):
        torch.testing.assert_close(getattr(few, name), getattr(whole, name))
