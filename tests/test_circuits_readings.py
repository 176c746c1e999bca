"""Heads read in tokens: planted trigrams, exact scores of the first layer, one token back."""

import pytest
import torch
from torch.testing import assert_close

from interp import TransformerConfig, circuits
from tests import oracle
from tests.fixture_models import gbmi_indhead
from tests.scrambled import scrambled
from tests.tiny import KINDS, tiny


def test_a_planted_trigram_is_read_and_nothing_else():
    """Head 0 lets token 2 look for token 5, and says 7 of it: 5 … 2 → 7."""
    model = tiny("bare", d_model=32, d_head=20, d_vocab=20)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.W_E[:, :20] = torch.eye(20)
        model.W_U[:20] = torch.eye(20)
        attn = model.blocks[0].attn
        attn.W_Q[0, 2, 0], attn.W_K[0, 5, 0] = 3.0, 4.0
        attn.W_V[0, 5, 1], attn.W_O[0, 1, 7] = 1.0, 2.0
    ((source, query, output, score, logit),) = circuits.skip_trigrams(model, 0, 0).strongest()
    assert (source, query, output) == (5, 2, 7)
    assert score == pytest.approx(12 * model.config.scale * 19 / 20)  # less the mean over sources
    assert logit == pytest.approx(2 * 19 / 20)
    assert circuits.skip_trigrams(model, 0, 1).strongest() == []


def test_scores_of_the_first_layer_are_exact():
    config = TransformerConfig(
        n_layers=1, n_heads=2, d_model=16, d_vocab=9, n_ctx=9, positional="none", n_kv_heads=1
    )
    model, tokens = scrambled(config), torch.arange(9)[None]
    found = circuits.skip_trigrams(model, 0, 1, k=9)
    scores = torch.empty(9, 9).scatter_(1, found.query, found.score).T  # query, source
    _, cache = model.run_with_cache(tokens)
    # the last row sees all: what counts in a softmax are differences
    pattern = cache["pattern", 0][0, 1, -1]
    assert_close(scores[8].softmax(-1), pattern, atol=1e-5, rtol=1e-4)
    assert pattern.max() > 0.2
    assert found.frame("output").shape[0] == 81


@pytest.mark.parametrize("kind", ["llama", "gptj"])
@pytest.mark.parametrize("distance", [1, 3])
def test_scores_at_a_distance_are_those_of_rotated_queries(kind, distance):
    model = tiny(kind, bias=True)
    pairs = torch.cartesian_prod(torch.arange(20), torch.arange(20))  # source, query
    _, cache = model.run_with_cache(pairs[:, [0] * distance + [1]])
    scores = cache["attn_scores", 0][:, 2, distance, 0].view(20, 20)
    found = circuits.skip_trigrams(model, 0, 2, k=20, distance=distance)
    assert_close(found.score, (scores - scores.mean(0)).gather(1, found.query))
    other = circuits.skip_trigrams(model, 0, 2, k=20, distance=distance + 1)
    assert not torch.allclose(other.score, found.score, atol=0.01)


@pytest.mark.parametrize("where", [(0, 0), (0, 1), (1, 0)])
def test_who_looks_one_token_back_is_told_from_weights(where):
    heads = [[oracle.uniform, oracle.look_back(2)], [oracle.induction, oracle.sink]]
    heads[where[0]][where[1]] = oracle.previous
    match = circuits.previous_token_match(oracle.model(*heads))
    wanted = torch.zeros(2, 2)
    wanted[where] = 1
    assert_close(match, wanted, atol=0.05, rtol=0)  # the first row that sees two keys


def test_a_trained_previous_token_head_is_read_as_one(shared):
    match = circuits.previous_token_match(gbmi_indhead(shared))
    assert match[0, 0] > 0.8
    assert match[1, 0] < 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_random_heads_of_every_kind_do_not_look_one_token_back(kind):
    match = circuits.previous_token_match(tiny(kind), length=16)
    assert match.shape == (2, 4)
    assert match.mean() < 0.4  # a window of 3 gives a third by chance


def test_what_has_no_scores_of_weights_is_refused():
    with pytest.raises(ValueError, match="normalised"):
        circuits.skip_trigrams(tiny(qk_normalization="rms_norm"), 0, 0)
    with pytest.raises(ValueError, match="before a softmax"):
        circuits.previous_token_match(tiny(attention="linear"))
    with pytest.raises(ValueError, match="no head"):
        circuits.skip_trigrams(tiny(), 0, 9)
