import pytest
import torch

from interp.tasks import UNSCORED, make
from interp.tasks.repeated_tokens import RepeatedTokens, _draw


def repeats_by_hand(tokens: list[int], bos: int) -> list[int]:
    """Targets by their definition: what follows a token that occurred before."""
    targets = [UNSCORED] * len(tokens)
    for t in range(1, len(tokens) - 1):
        if tokens[t] in tokens[1:t]:
            targets[t] = tokens[t + 1]
    assert tokens[0] == bos
    return targets


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_targets_are_the_next_token_wherever_one_occurred_before(split, generator):
    task = make("repeated_tokens")
    batch = task.batch(50, generator, split=split)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        assert targets == repeats_by_hand(tokens, bos=64)


def test_what_followed_last_time_follows_again(generator):
    """The answer of an induction head is right at every target."""
    batch = make("repeated_tokens").batch(50, generator)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        for t, target in enumerate(targets):
            if target != UNSCORED:
                last = max(s for s in range(t) if tokens[s] == tokens[t])
                assert tokens[last + 1] == target


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_blocks_are_distinct_have_the_split_s_periods_and_are_disjoint_from_prefixes(
    split, generator
):
    config = RepeatedTokens()
    drawn = _draw(config, 400, generator, split=split).tolist()
    allowed, seen = config.periods(split), set()
    for prefix, period, bos, *tokens in drawn:
        assert bos == config.bos_token
        block = tokens[prefix : prefix + period]
        assert len(set(block)) == period
        assert len({*tokens[:prefix], *block}) == prefix + period
        assert tokens[prefix:] == (block * 64)[: 63 - prefix]
        seen.add(period)
    assert seen == set(allowed)


def test_withheld_periods_are_the_held_out_ones_and_no_others():
    config = RepeatedTokens(min_period=8, max_period=32, withheld=(12, 20, 28))
    assert config.periods("held_out") == [12, 20, 28]
    assert config.periods("train") == [p for p in range(8, 33) if p not in (12, 20, 28)]
    everywhere = RepeatedTokens(withheld=())
    assert everywhere.periods("train") == everywhere.periods("held_out") == list(range(8, 33))


def test_the_default_withholds_periods_inside_its_range():
    config = RepeatedTokens()
    low, high = config.period_range
    assert (low, high) == (8, 32)
    assert config.withheld_periods == (12, 17, 22, 27)
    assert all(low < p < high for p in config.withheld_periods)


@pytest.mark.parametrize("size", [8, 12, 16, 32, 128])
def test_the_default_fits_itself_to_other_sizes(size, generator):
    batch = make("repeated_tokens", vocab=size, length=size).batch(100, generator)
    assert (batch.targets != UNSCORED).any(-1).all()


def test_about_half_of_the_sequences_have_a_prefix(generator):
    prefixes = _draw(RepeatedTokens(), 2000, generator, split="train")[:, 0]
    assert (prefixes > 0).float().mean().item() == pytest.approx(0.5, abs=0.05)  # 4.5 deviations
    assert prefixes.max().item() == RepeatedTokens().longest_prefix == 16
    none = _draw(RepeatedTokens(prefix_share=0), 100, generator, split="train")[:, 0]
    assert (none == 0).all()


def test_all_asks_for_every_next_token(generator):
    batch = make("repeated_tokens", scored="all").batch(4, generator)
    assert torch.equal(batch.targets[:, :-1], batch.tokens[:, 1:])
    assert (batch.targets[:, -1] == UNSCORED).all()
