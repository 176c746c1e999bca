import pytest
import torch
from torch.testing import assert_close

from interp import lens
from tests.tiny import KINDS, some_tokens, tiny


@pytest.mark.parametrize("kind", KINDS)
def test_the_lens_ends_with_the_model_s_own_logits(kind):
    model, tokens = tiny(kind), some_tokens()
    logits = lens.logit_lens(model, tokens)
    assert logits.shape == (3, 3, 12, 20)
    assert_close(logits[-1], model(tokens), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits[0], logits[-1], atol=1e-2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "capped_tied"])
def test_attributions_add_up_to_the_logit(kind):
    model, tokens = tiny(kind), some_tokens()
    answer, wrong = some_tokens(seed=1), some_tokens(seed=2)
    answer[:, :5] = -100
    got = lens.direct_logit_attribution(model, tokens, answer, wrong)
    logits = model(tokens)
    pick = lambda which: logits.gather(-1, which.clamp(min=0)[..., None])[..., 0]  # noqa: E731
    assert_close(
        got.per_position.sum(0)[:, 5:], (pick(answer) - pick(wrong))[:, 5:], atol=1e-4, rtol=1e-4
    )
    assert got.per_position[:, :, :5].isnan().all()
    assert_close(got.logit, (pick(answer) - pick(wrong))[:, 5:].mean().item(), atol=1e-4, rtol=1e-4)
    assert "L1H3" in got.components
    assert len(got.frame()) == len(got.components)


def test_a_head_that_writes_the_answer_is_credited_and_no_other():
    model, tokens = tiny("bare"), some_tokens()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    model.embed.weight.data[:, 0] = 1  # every token carries direction 0
    attn = model.blocks[1].attn
    attn.W_V[2, 0, 0], attn.W_O[2, 0, 1] = 1.0, 1.0  # the head moves it to direction 1
    model.W_U[1, 7] = 3.0
    got = lens.direct_logit_attribution(model, tokens, torch.full_like(tokens, 7))
    named = dict(zip(got.components, got.effect.tolist(), strict=True))
    assert named.pop("L1H2") == pytest.approx(3.0)
    assert all(value == 0 for value in named.values())


def test_bad_questions_are_refused():
    model, tokens = tiny(), some_tokens()
    with pytest.raises(ValueError, match="answer must be"):
        lens.direct_logit_attribution(model, tokens, tokens[:, :3])
    with pytest.raises(ValueError, match="answer must be"):
        lens.direct_logit_attribution(model, tokens, torch.full_like(tokens, -100))
