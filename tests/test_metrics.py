import math
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from interp import metrics

NO = metrics.UNSCORED


@dataclass(frozen=True)
class Answers:
    targets: Tensor


@pytest.fixture
def logits() -> Tensor:
    """Probabilities of 3 tokens at 2 examples × 3 positions, by hand."""
    p = torch.tensor(
        [
            [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]],
            [[0.25, 0.25, 0.5], [1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1]],
        ]
    )
    return p.log()


ANSWERS = Answers(torch.tensor([[0, 2, NO], [NO, NO, NO]]))


def test_metrics_by_hand_leave_out_what_is_not_scored(logits):
    expected = {
        "loss": (math.log(2) + math.log(10)) / 2,
        "accuracy": 0.5,
        "probability": 0.3,
        "logit_difference": (math.log(2) + (math.log(1) - (math.log(8)) / 2)) / 2,
    }
    for name, value in expected.items():
        result = metrics.METRICS[name](logits, ANSWERS)
        assert result.shape == (2,)
        assert result[0].item() == pytest.approx(value, abs=1e-6), name
        assert result[1].isnan(), name


def test_loss_of_indifferent_logits_is_log_vocabulary():
    answers = Answers(torch.tensor([[1, 2]]))
    assert metrics.loss(torch.zeros(1, 2, 5), answers).item() == pytest.approx(math.log(5))
    assert metrics.logit_difference(torch.zeros(1, 2, 5), answers).item() == 0


def test_logit_difference_against_a_named_token(logits):
    wrong = torch.tensor([[2, 1, NO], [NO, NO, NO]])
    value = metrics.logit_difference(logits, ANSWERS, wrong=wrong)[0].item()
    assert value == pytest.approx((math.log(0.5 / 0.25) + math.log(0.1 / 0.8)) / 2)


def test_kl_is_zero_for_the_same_and_right_by_hand(logits):
    assert metrics.kl_divergence(logits, ANSWERS, reference=logits)[0].item() == pytest.approx(0)
    metric = partial(metrics.kl_divergence, reference=logits)
    uniform = metric(torch.zeros_like(logits), ANSWERS)[0].item()
    entropies = [-(p * p.log()).sum().item() for p in logits[0, :2].exp()]
    assert uniform == pytest.approx(math.log(3) - sum(entropies) / 2, abs=1e-6)


def test_kl_with_impossible_tokens_is_not_nan():
    reference = torch.tensor([[[0.0, -torch.inf]]])
    assert metrics.per_token_kl(reference, reference).item() == 0
    assert metrics.per_token_kl(torch.zeros(1, 1, 2), reference).item() == pytest.approx(
        math.log(2)
    )


def test_per_token_loss_is_nan_where_unscored_and_its_gradient_is_zero(logits):
    logits = logits.clone().requires_grad_()
    losses = metrics.per_token_loss(logits, ANSWERS.targets)
    assert losses.isnan().tolist() == [[False, False, True], [True, True, True]]
    metrics.loss(logits, ANSWERS)[0].backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[1] == 0).all()


def test_weighted_mean_is_the_mean_over_tokens_not_of_means(logits):
    answers = Answers(torch.tensor([[0, 1, 2], [0, NO, NO]]))
    per_example = metrics.loss(logits, answers)
    mean = metrics.weighted_mean(per_example, metrics.scored_counts(answers.targets))
    tokens = [0.5, 0.8, 0.6, 0.25]
    assert mean.item() == pytest.approx(-sum(math.log(p) for p in tokens) / 4)
    assert mean.item() == pytest.approx(metrics.mean_loss(logits, answers.targets).item())
    assert abs(mean.item() - per_example.mean().item()) > 0.1


def test_examples_without_targets_do_not_touch_the_mean(logits):
    counts = metrics.scored_counts(ANSWERS.targets)
    mean = metrics.weighted_mean(metrics.loss(logits, ANSWERS), counts)
    assert mean.item() == pytest.approx((math.log(2) + math.log(10)) / 2)
    assert metrics.weighted_mean(torch.tensor([torch.nan]), torch.tensor([0])).isnan()


def test_mean_loss_without_targets_is_zero_with_zero_gradient(logits):
    logits = logits.clone().requires_grad_()
    value = metrics.mean_loss(logits, torch.full((2, 3), NO))
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_axes_in_front_are_kept(logits):
    stacked = torch.stack([logits, logits * 2])
    for name, metric in metrics.METRICS.items():
        both = metric(stacked, ANSWERS)
        assert both.shape == (2, 2)
        torch.testing.assert_close(both[1], metric(logits * 2, ANSWERS), equal_nan=True, msg=name)
    assert metrics.weighted_mean(both, torch.tensor([2, 0])).shape == (2,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_summed_in_float32(dtype, generator):
    logits = torch.randn(2, 9, 50, generator=generator).to(dtype)
    answers = Answers(torch.randint(50, (2, 9), generator=generator))
    exact = metrics.loss(logits.double(), answers)
    assert metrics.loss(logits, answers).dtype is torch.float32
    torch.testing.assert_close(metrics.loss(logits, answers).double(), exact, atol=1e-5, rtol=0)


def test_shapes_that_do_not_fit_are_refused(logits):
    with pytest.raises(ValueError, match=r"got \[2, 3, 3\] and \[2, 2\]"):
        metrics.loss(logits, Answers(torch.zeros(2, 2, dtype=torch.long)))
    with pytest.raises(ValueError, match=r"wanted logits"):
        metrics.accuracy(logits[0], Answers(torch.zeros(2, 3, dtype=torch.long)))


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [6, 7, 8, NO]),
        ([1, 1, 1, 1], [6, 7, 8, NO]),
        ([1, 1, 0, 0], [6, NO, NO, NO]),  # right padding
        ([0, 0, 1, 1], [NO, NO, 8, NO]),  # left padding
        ([1, 0, 1, 1], [NO, NO, 8, NO]),  # a hole
        ([0, 1, 0, 0], [NO] * 4),
        ([0, 0, 0, 0], [NO] * 4),
    ],
)
def test_next_token_targets_need_two_real_tokens(mask, expected):
    tokens = torch.tensor([[5, 6, 7, 8]])
    real = None if mask is None else torch.tensor([mask]).bool()
    assert metrics.next_token_targets(tokens, real).tolist() == [expected]


def test_targets_of_a_single_token_are_empty():
    assert metrics.next_token_targets(torch.tensor([[3]])).tolist() == [[NO]]


@given(st.integers(0, 4), st.integers(1, 6))
def test_padding_on_either_side_leaves_the_same_targets(pads, length):
    tokens = torch.arange(1, length + 1)[None]
    padding, none = torch.zeros(1, pads, dtype=torch.long), torch.zeros(1, pads, dtype=torch.bool)
    real = torch.ones(1, length, dtype=torch.bool)
    alone = metrics.next_token_targets(tokens)
    left = metrics.next_token_targets(torch.cat([padding, tokens], 1), torch.cat([none, real], 1))
    right = metrics.next_token_targets(torch.cat([tokens, padding], 1), torch.cat([real, none], 1))
    assert torch.equal(left[:, pads:], alone)
    assert torch.equal(right[:, :length], alone)
    assert (left[:, :pads] == NO).all()
    assert (right[:, length:] == NO).all()


def test_pads_never_change_the_loss(generator):
    tokens = torch.randint(9, (2, 6), generator=generator)
    mask = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0]]).bool()
    other = tokens.masked_fill(~mask, 8)
    logits = torch.randn(2, 6, 9, generator=generator)
    losses = [
        metrics.mean_loss(logits, metrics.next_token_targets(t, mask)) for t in (tokens, other)
    ]
    assert torch.equal(*losses)
    assert metrics.scored_counts(metrics.next_token_targets(tokens, mask)).tolist() == [5, 1]
