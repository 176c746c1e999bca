"""Masks as functions of positions: by hand, by count, and what is refused."""

import pytest
import torch

from interp.attention.masks import (
    MASKS,
    BigBird,
    Causal,
    Full,
    Longformer,
    Streaming,
    Visible,
    Window,
)

RULES = [
    Causal(),
    Full(),
    Window(1),
    Window(3),
    Streaming(3, sinks=2),
    Streaming(2, sinks=0),
    Longformer(2, (0, 5)),
    Longformer(3, (1, 6), causal=False),
    BigBird(4, block=2, global_blocks=1, random_blocks=1),
    BigBird(3, block=3, global_blocks=0, random_blocks=2, seed=5),
]


def table(rule, n):
    position = torch.arange(n)
    return rule(position[:, None], position[None, :])


def drawn(rows):
    return torch.tensor([[c == "x" for c in row] for row in rows])


def test_streaming_sees_sinks_and_window():
    rows = ["x....", "xx...", "xxx..", "x.xx.", "x..xx"]
    assert torch.equal(table(Streaming(2, sinks=1), 5), drawn(rows))


def test_causal_longformer_sees_window_and_global_tokens_and_global_tokens_see_the_past():
    rows = ["x.....", "xx....", ".xx...", "xxxx..", "...xx.", "...xxx"]
    assert torch.equal(table(Longformer(2, (3,)), 6), drawn(rows))


def test_bidirectional_longformer_is_symmetric():
    rows = ["xx.x.", "xxxx.", ".xxx.", "xxxxx", "...xx"]
    mask = table(Longformer(3, (3,), causal=False), 5)
    assert torch.equal(mask, drawn(rows))
    assert torch.equal(mask, mask.T)


def test_bigbird_sees_own_block_window_and_global_blocks():
    rule = BigBird(4, block=2, global_blocks=1, random_blocks=0)
    rows = ["x.......", "xx......", "xxx.....", "xxxx....", "xxxxx...", "xxxxxx..", "xx..xxx."]
    assert torch.equal(table(rule, 8)[:7], drawn(rows))


def test_random_blocks_are_distinct_and_outside_window_and_globals():
    rule = BigBird(8, block=4, global_blocks=2, random_blocks=3)
    for block, row in enumerate(rule.plan(200).tolist()):
        free = max(0, block - 1 - 2)
        real = [b for b in row if b >= 0]
        assert len(real) == len(set(real)) == min(3, free)
        assert all(2 <= b < block - 1 for b in real)


def test_bigbird_mask_has_as_many_entries_as_the_formula_says():
    block, n_blocks, near, first, drawn_ = 4, 20, 2, 2, 3
    rule = BigBird(near * block, block=block, global_blocks=first, random_blocks=drawn_)
    whole = sum(
        min(i, near - 1) + min(first, max(0, i - near + 1)) + min(drawn_, max(0, i - near + 1 - 2))
        for i in range(n_blocks)
    )
    expected = whole * block**2 + n_blocks * block * (block + 1) // 2
    assert int(table(rule, n_blocks * block).sum()) == expected


def test_bigbird_draws_by_seed_and_never_changes_its_past():
    short, long = BigBird(4, block=4).plan(9), BigBird(4, block=4).plan(900)
    assert torch.equal(short, long[:9])
    assert not torch.equal(BigBird(4, block=4, seed=1).plan(900), long)


def test_random_blocks_are_drawn_evenly():
    rows = torch.stack([BigBird(1, block=1, seed=s).plan(12)[11] for s in range(600)])
    counts = torch.bincount(rows.flatten(), minlength=12)[1:11].double()
    # 1,800 draws over ten blocks: 180 each, standard deviation √(600·.3·.7) = 11
    assert (counts - 180).abs().max() < 4 * 11.3


def test_bigbird_with_every_block_drawn_is_causal():
    rule = BigBird(2, block=2, global_blocks=0, random_blocks=10)
    assert torch.equal(table(rule, 20), table(Causal(), 20))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_count_is_the_number_of_visible_keys(rule):
    for n_q, n_k in ((13, 13), (5, 13)):
        k_pos = torch.arange(n_k)[None]
        visible = Visible(rule, q_pos=k_pos[:, n_k - n_q :], k_pos=k_pos)
        assert torch.equal(visible.count(), visible.grid().sum(-1))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_count_leaves_pads_out(rule):
    real = torch.ones(2, 11, dtype=torch.bool)
    real[0, :4], real[1, 9:] = False, False
    position = (real.long().cumsum(-1) - 1).clamp(min=0)
    visible = Visible(rule, position, position, real_q=real, real_k=real, in_order=False)
    assert torch.equal(visible.count(), visible.grid().sum(-1))


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("window", {"window": 0}, "the token itself"),
        ("streaming", {"window": 4, "sinks": -1}, "sinks"),
        ("longformer", {"window": 4, "causal": False}, "odd"),
        ("longformer", {"window": 4, "global_tokens": (3, 1)}, "rising"),
        ("bigbird", {"window": 100, "block": 64}, "multiple of block"),
        ("bigbird", {"window": 64, "random_blocks": -1}, "random_blocks"),
        ("bigbird", {"window": 64, "seed": 0.5}, "seed"),
        ("longformer", {"window": 4, "global_tokens": 3}, "tuple"),
        ("window", {"window": 2.5}, "integer"),
        ("performer", {"features": 0}, "at least 1"),
        ("performer", {"kind": "cosine"}, "one of"),
    ],
)
def test_impossible_options_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        MASKS[kind](**options)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="sinks"):
        MASKS["window"](window=4, sinks=1)
