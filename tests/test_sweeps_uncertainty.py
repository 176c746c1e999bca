"""Intervals and tests: truth tables, weights, coverage."""

import pytest
import torch

from interp.sweeps import bootstrap_interval, holm, permutation_p_values


def test_holm_by_hand():
    p = torch.tensor([[0.01, 0.04], [0.03, 0.005]])
    torch.testing.assert_close(holm(p), torch.tensor([[0.03, 0.06], [0.06, 0.02]]))
    assert holm(torch.tensor([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_an_interval_of_equal_values_is_a_point():
    low, high = bootstrap_interval(torch.full((3, 5), 2.0), torch.tensor([1, 2, 3, 4, 5]))
    assert low.tolist() == high.tolist() == [2.0, 2.0, 2.0]


def test_examples_of_no_weight_are_left_out_whatever_their_value():
    values = torch.tensor([1.0, 3.0, 2.0, torch.nan])
    with_junk = bootstrap_interval(values, torch.tensor([1, 1, 1, 0]))
    without = bootstrap_interval(values[:3], torch.tensor([1, 1, 1]))
    assert with_junk.low == without.low
    assert with_junk.high == without.high


def test_the_weight_goes_with_its_example():
    """Nine tokens of 0 in one example, one of 10 in another: their mean is 1, not 5."""
    values, weights = torch.tensor([0.0, 10.0] * 50), torch.tensor([9, 1] * 50)
    low, high = bootstrap_interval(values, weights)
    assert low < 1.0 < high < 3.0


def test_intervals_cover_as_often_as_they_say():
    g = torch.Generator().manual_seed(0)
    values = torch.randn(400, 40, generator=g)  # 400 experiments, true mean 0
    low, high = bootstrap_interval(values, torch.ones(40).long(), level=0.9, draws=1000)
    covered = ((low < 0) & (high > 0)).double().mean()
    assert 0.84 < covered < 0.94  # percentile intervals are a little short at 40


def test_one_example_has_no_interval():
    low, high = bootstrap_interval(torch.tensor([[1.0]]), torch.tensor([3]))
    assert low.isnan().all()
    assert high.isnan().all()


def test_draws_do_not_touch_the_global_generator():
    before = torch.get_rng_state()
    values, weights = torch.randn(2, 6, generator=torch.Generator().manual_seed(1)), torch.ones(6)
    a = bootstrap_interval(values, weights.long())
    b = bootstrap_interval(values, weights.long())
    permutation_p_values(values, weights.long())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a.low, b.low)


def test_permutation_p_is_small_for_an_effect_and_uniform_without():
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(300, 30, generator=g)
    ones = torch.ones(30).long()
    p = permutation_p_values(noise, ones)
    assert 0.02 < (p < 0.05).double().mean() < 0.09
    assert permutation_p_values(noise[:3] + 2, ones).max() < 0.002
    assert permutation_p_values(torch.zeros(1, 30), ones).item() == 1.0


def test_levels_outside_0_and_1_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_interval(torch.zeros(3), torch.ones(3).long(), level=95)


def test_there_may_be_more_means_than_a_quantile_takes_at_once(generator):
    values = torch.randn(90_000, 3, generator=generator)  # × 200 draws: over torch's 16 million
    interval = bootstrap_interval(values, torch.ones(3), draws=200)
    few = bootstrap_interval(values[-2:], torch.ones(3), draws=200)
    torch.testing.assert_close(interval.low[-2:], few.low)
    assert interval.high.shape == (90_000,)
