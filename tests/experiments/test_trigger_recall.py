"""Memory recall: the measure on weights set by hand, the parts that stay, and the page."""

import json
from pathlib import Path

import pytest
import torch

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)


@pytest.fixture
def small(scripts):
    from triggers.training import Setting

    return Setting(d_model=128, length=16, batch_size=4, steps=2, every=1, seeds=1)


def test_memories_set_by_hand_are_recalled(small):
    """Sums of outer products, with embeddings that are orthonormal: the paper's construction."""
    from triggers.training import model_of, recalled

    model = model_of(small, 0)
    directions = torch.eye(128)
    model.W_E.copy_(directions[:64])
    model.W_pos.copy_(directions[64:80])
    first, second = (block.attn for block in model.blocks)
    for weight in (first.W_V, first.W_O, second.W_V, second.W_K, second.W_O, model.W_U):
        weight.zero_()
    model.W_U.copy_(directions[:, :64])
    first.W_K[0] = torch.einsum("td,te->de", model.W_pos[:-1], model.W_pos[1:])
    first.W_V[0], first.W_O[0] = directions.roll(1, 0), directions  # token i is written as i − 1
    second.W_K[0] = directions.roll(-1, 0)
    second.W_V[0], second.W_O[0] = directions, directions
    triggers = torch.tensor([3, 8, 20])
    hits = recalled(model, triggers)
    assert {name: x.tolist() for name, x in hits.items()} == {
        "W_O^1": [True] * 64,
        "W_K^1": [True] * 3,
        "W_K^0": [True] * 15,
    }
    first.W_K[0] = torch.einsum("td,te->de", model.W_pos, model.W_pos)  # a position finds itself
    second.W_K[0, [2, 7, 19]] = directions[[8, 20, 3]]  # a trigger finds another one
    hits = recalled(model, triggers)
    assert not hits["W_K^0"][:-1].any()
    assert not hits["W_K^1"].any()


def test_only_the_three_memories_move(small):
    from triggers.training import followed, model_of

    before, after = model_of(small, 0), model_of(small, 0)
    list(followed(after, small, seed=0))
    moved = {
        f"{name}{layer}"
        for layer in (0, 1)
        for name in ("W_Q", "W_K", "W_V", "W_O")
        if not torch.equal(getattr(before, name)[layer], getattr(after, name)[layer])
    }
    assert moved == {"W_K0", "W_K1", "W_O1"}
    assert torch.equal(before.W_E, after.W_E)


def test_the_output_memory_is_learned_first_and_the_page_is_written(scripts, tmp_path):
    import trigger_recall

    trigger_recall.main(tmp_path, quick=True)
    kept = json.loads((tmp_path / "trigger_recall.json").read_text())
    first, last = (kept["numbers"]["runs"][0][at] for at in (0, -1))
    assert last["recall"]["W_O^1"] > first["recall"]["W_O^1"] + 0.2
    assert last["recall"]["W_K^0"] < 0.3
    assert last["loss"] < first["loss"]
    assert "In which order" in (tmp_path / "trigger_recall.html").read_text()
