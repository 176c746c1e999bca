"""Scores of patterns that are at hand: truth tables by hand."""

import pytest
import torch

from interp import probes


def hand_patterns(period: int, n: int, bos: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A repeated block, and perfect induction, previous-token and duplicate-token heads.

    A head rests on the first token where it has nothing to look for.
    """
    tokens = torch.arange(n)[None] % period + 1
    if bos:
        tokens = torch.cat([torch.zeros(1, 1).long(), tokens], 1)
    total, start = tokens.shape[1], int(bos)
    pattern = torch.zeros(1, 3, total, total)
    for i in range(total):
        late = i - start >= period
        for h, j in enumerate(
            (i - period + 1 if late else 0, max(i - 1, 0), i - period if late else 0)
        ):
            pattern[0, h, i, j] = 1
    return tokens, pattern


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("period", [3, 4, 7])
def test_each_perfect_head_scores_one_on_its_own_score_and_zero_on_the_others(period, bos):
    tokens, pattern = hand_patterns(period, 2 * period, bos)
    assert probes.induction_score(pattern, tokens).tolist() == [1, 0, 0]
    assert probes.duplicate_token_score(pattern, tokens).tolist() == [0, 0, 1]
    previous = probes.previous_token_score(pattern, tokens)
    assert previous[1] == 1
    assert (previous[[0, 2]] < 0.3).all()  # row 1 rests on the first token, which is its previous


def test_all_earlier_occurrences_are_credited():
    tokens = torch.tensor([[5, 1, 2, 3, 1, 2, 3, 1, 2]])
    pattern = torch.zeros(1, 1, 9, 9)
    pattern[..., 0] = 1
    pattern[0, 0, 7] = 0
    pattern[0, 0, 7, [2, 5]] = 0.5  # after the 1s at 1 and 4
    rows = torch.zeros(1, 9, dtype=torch.bool)
    rows[0, 7] = True
    assert probes.induction_score(pattern, tokens, rows=rows) == 1


@pytest.mark.parametrize("period", [1, 2])
def test_periods_on_which_the_previous_token_is_the_target_are_refused(period):
    tokens = torch.arange(8)[None] % period
    pattern = torch.full((1, 1, 8, 8), 1 / 8)
    with pytest.raises(ValueError, match="period is at least 3"):
        probes.induction_score(pattern, tokens)


def test_without_targets_a_score_is_nan():
    tokens = torch.arange(5)[None]
    pattern = torch.eye(5)[None, None]
    assert probes.induction_score(pattern, tokens).isnan()
    assert probes.duplicate_token_score(pattern, tokens).isnan()
    assert probes.previous_token_score(pattern[:, :, :1, :1], tokens[:, :1]).isnan()


def test_a_uniform_head_scores_chance():
    tokens, _ = hand_patterns(10, 20, bos=False)
    uniform = torch.ones(20, 20).tril()
    uniform = (uniform / uniform.sum(-1, keepdim=True))[None, None]
    chance = (1 / torch.arange(11.0, 21)).mean()  # one key of the 11 … 20 that rows 10 … 19 see
    torch.testing.assert_close(probes.induction_score(uniform, tokens), chance[None])
    assert probes.induction_score(uniform, tokens) == pytest.approx(0.067, abs=1e-3)


@pytest.mark.parametrize("left", [0, 1, 3])
def test_padding_changes_no_score(left):
    tokens, pattern = hand_patterns(4, 8, bos=True)
    n = tokens.shape[1]
    mask = torch.zeros(1, n + 3, dtype=torch.bool)
    mask[:, left : left + n] = True
    padded = torch.full((1, n + 3), 3)  # a pad that looks like a token
    padded[:, left : left + n] = tokens
    grown = torch.zeros(1, 3, n + 3, n + 3)
    grown[:, :, left : left + n, left : left + n] = pattern
    for score in (
        probes.induction_score,
        probes.duplicate_token_score,
        probes.previous_token_score,
        probes.sink_score,
    ):
        assert torch.equal(score(grown, padded, mask=mask), score(pattern, tokens))
    assert torch.equal(probes.entropy(grown, mask), probes.entropy(pattern))


def test_rows_choose_what_is_averaged():
    tokens, pattern = hand_patterns(4, 8, bos=True)
    rows = tokens != 0
    assert probes.sink_score(pattern, tokens, rows=rows)[1] == pytest.approx(1 / 8)
    assert probes.sink_score(pattern, tokens, rows=rows & (torch.arange(9) > 1))[1] == 0


def test_entropy_of_uniform_and_one_hot_heads():
    uniform = torch.ones(16, 16).tril()
    uniform = uniform / uniform.sum(-1, keepdim=True)
    both = torch.stack([uniform, torch.eye(16)])[None]
    torch.testing.assert_close(probes.entropy(both)[0], torch.tensor([1.0, 0.0]), atol=1e-5, rtol=0)
    nats = probes.entropy(both, normalized=False)[0]
    torch.testing.assert_close(nats[0], torch.arange(1.0, 17).log().mean())
    assert nats[1] == 0


@pytest.mark.parametrize("n", [2, 7, 64])
def test_a_uniform_head_over_all_keys_scores_one(n):
    uniform = torch.full((1, 1, n, n), 1 / n)
    torch.testing.assert_close(probes.entropy(uniform, causal=False), torch.ones(1, 1))


def test_one_key_has_no_normalized_entropy():
    assert probes.entropy(torch.ones(1, 1, 1, 1)).isnan().all()
    assert probes.entropy(torch.ones(1, 1, 1, 1), normalized=False) == 0


def test_weight_on_keys_that_may_not_be_seen_is_refused():
    uniform = torch.full((1, 1, 4, 4), 0.25)
    with pytest.raises(ValueError, match="keys that it may not see"):
        probes.entropy(uniform)
    rows = torch.tensor([[False, False, False, True]])
    torch.testing.assert_close(probes.entropy(uniform, rows=rows), torch.ones(1, 1))


def test_half_precision_is_summed_in_single():
    n = 512
    uniform = torch.full((1, 1, n, n), 1 / n).bfloat16()
    found = probes.entropy(uniform, causal=False)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.ones(1, 1), atol=1e-4, rtol=0)


def test_bad_input_is_refused():
    tokens, pattern = hand_patterns(4, 8, bos=False)
    with pytest.raises(TypeError, match="token ids"):
        probes.induction_score(pattern, tokens.float())
    with pytest.raises(ValueError, match="square pattern"):
        probes.induction_score(pattern[:, :, :5], tokens)
    with pytest.raises(TypeError, match="mask must be bools"):
        probes.entropy(pattern, torch.ones(1, 8))
    with pytest.raises(ValueError, match="rows"):
        probes.entropy(pattern, rows=torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="wanted token ids"):
        probes.induction_score(pattern, tokens[0])
    with pytest.raises(ValueError, match="of floats"):
        probes.entropy(pattern.long())


@pytest.mark.parametrize("bad", [-torch.eye(8), 3 * torch.eye(8)])
def test_scores_are_refused_where_a_pattern_is_wanted(bad):
    tokens, _ = hand_patterns(4, 8, bos=False)
    for call in (probes.entropy, lambda pattern: probes.previous_token_score(pattern, tokens)):
        with pytest.raises(ValueError, match=r"scores\.softmax"):
            call(bad[None, None])
    assert probes.entropy(torch.full((1, 1, 8, 8), torch.nan)).isnan().all()


def test_the_gradient_of_an_entropy_is_finite_where_weights_are_zero():
    scores = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    hidden = torch.ones(6, 6).triu(1).bool()
    probes.entropy(scores.masked_fill(hidden, -torch.inf).softmax(-1)).sum().backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[..., ~hidden].abs().max() > 0
