"""The phase change on text: its measures by hand, and the whole of it at the smallest size."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)


def test_repeats_are_of_bytes_that_the_text_has(scripts):
    from text_models.measures import PERIOD, TIMES, common_bytes, repeats

    from interp import tasks

    task = tasks.make("text", length=32)
    common = common_bytes(task).tolist()
    assert {ord(sign) for sign in "ETSm(_"} & set(common)
    assert ord(" ") not in common
    tokens = repeats(task)
    assert tokens.shape[1] == 1 + PERIOD * TIMES
    assert (tokens[:, 0] == task.bos_token).all()
    assert set(tokens[:, 1:].flatten().tolist()) <= set(common)
    blocks = tokens[:, 1:].view(len(tokens), TIMES, PERIOD)
    assert (blocks == blocks[:, :1]).all()
    assert all(len(set(block.tolist())) == PERIOD for block in blocks[:, 0])


def test_what_induction_foretells_is_what_followed_the_same_context(scripts):
    from text_models.measures import foretold

    tokens = torch.tensor([[9, 1, 2, 3, 1, 2, 3, 2, 5]])
    got = foretold(tokens, context=1)[0].tolist()
    assert got == [False, False, False, False, True, True, False, False]
    # With two tokens of context, the first repeat of (1, 2) is the first that is foretold.
    assert foretold(tokens, context=2)[0].tolist() == [False] * 5 + [True, False, False]


def test_the_window_score_is_the_difference_of_two_plateaus(scripts):
    from text_models.measures import window_score

    losses = torch.full((2, 3, 255), 3.0)
    losses[1, :, 100:] = 2.5
    got = window_score(losses, early=25, late=250)
    assert got.tolist() == pytest.approx([0.0, -0.5])


def test_the_full_indices_stand_for_50_and_500_of_512(scripts):
    from text_models.training import FULL

    stands_for = [512 * index / FULL.length for index in (FULL.early, FULL.late)]
    assert stands_for == pytest.approx([50, 500], abs=256 / FULL.length)  # to half an index


def test_a_fall_is_from_before_the_heads_form_to_after_and_beyond_chance(scripts):
    from phase_change import Found, fall

    from interp.dynamics import Formation

    def model(icl, forms):
        steps = [100, 200, 300, 400, 500]
        return Found(steps, [], icl, [], [], [], forms)

    never = Formation(None, None, None, 0.0)
    one = model([0.1, 0.0, 0.1, 0.1, 0.1], never)
    forms = model([0.1, 0.02, 0.0, -0.3, -0.3], Formation(300, 200, 400, 0.5))
    got = fall(forms, one)
    assert (got.before, got.after) == (pytest.approx(0.01), pytest.approx(-0.4))
    assert got.spread == pytest.approx(0.01)
    assert got.large
    assert not fall(model([0.1, -0.4, 0, -0.3, -0.3], forms.forms), one).large
    assert fall(one, one) is None


def test_the_whole_of_it_is_written_and_untrained_models_show_no_phase_change(scripts, tmp_path):
    import phase_change

    phase_change.main(tmp_path, quick=True, only="one layer")
    assert not (tmp_path / "phase_change.json").exists()  # others are missing still
    phase_change.main(tmp_path, quick=True)
    found = json.loads((tmp_path / "phase_change.json").read_text())
    assert len(found["numbers"]["models"]) == 3
    for model in found["numbers"]["models"].values():
        assert model["loss"][-1] < model["loss"][0]
        assert model["forms"]["step"] is None
    verdicts = [row["verdict"] for row in found["comparisons"]]
    assert "reproduced" not in verdicts
    assert "context begins to help" in (tmp_path / "phase_change.html").read_text()
