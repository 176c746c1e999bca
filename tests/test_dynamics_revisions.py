"""Other people's checkpoints as a run."""

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import dynamics, probes
from tests.tiny import some_tokens


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Three models as transformers' own training saves them."""
    pytest.importorskip("transformers")
    from tests.hugging_face_models import make
    from tests.scrambled import scramble

    folder, model = tmp_path_factory.mktemp("out"), make("neox")
    for step in (500, 9, 1000):
        scramble(model, 0.05)
        model.save_pretrained(folder / f"checkpoint-{step}")
    return [folder / f"checkpoint-{step}" for step in (500, 9, 1000)]


def test_folders_that_transformers_saved_serve_as_a_run(saved):
    tokens = some_tokens(d_vocab=40)
    ask = {"statistics": ("previous_token", "ablation", "kl_to_final")}
    got = dynamics.over_checkpoints(saved, tokens, **ask)
    assert got.steps == (9, 500, 1000)
    for n, folder in enumerate((saved[1], saved[0], saved[2])):
        model = interp.load_hugging_face(folder)
        wanted = probes.head_statistics(model, tokens).previous_token
        assert_close(got.previous_token[n], wanted, equal_nan=True)
    assert not torch.equal(got.previous_token[0], got.previous_token[1])
    assert got.kl_to_final[2].abs().max() < 1e-4


def test_each_checkpoint_is_loaded_once_alone_and_the_second_time_never(saved, monkeypatch):
    loaded = []
    load = dynamics.Revisions.load
    monkeypatch.setattr(
        dynamics.Revisions, "load", lambda self, step: loaded.append(step) or load(self, step)
    )
    tokens = some_tokens(d_vocab=40, seed=4)
    first = dynamics.over_checkpoints(saved, tokens)
    assert loaded == [9, 500, 1000]
    again = dynamics.over_checkpoints(saved, tokens)
    assert loaded == [9, 500, 1000]
    assert_close(again.induction, first.induction)
    dynamics.over_checkpoints(dynamics.Revisions(saved[:2], steps=[9, 500]), tokens)
    assert loaded == [9, 500, 1000, 9, 500]  # other models at these steps


def test_lists_that_are_no_run_are_refused(saved, tmp_path):
    (tmp_path / "final").mkdir()
    with pytest.raises(ValueError, match="ends in no step"):
        dynamics.over_checkpoints([tmp_path / "final"], some_tokens())
    with pytest.raises(FileNotFoundError, match="last: there is no such folder"):
        dynamics.over_checkpoints([saved[0], tmp_path / "last"], some_tokens())
    (tmp_path / "file-3").touch()
    with pytest.raises(ValueError, match="file-3 is a file: wanted a folder"):
        dynamics.over_checkpoints([saved[0], tmp_path / "file-3"], some_tokens())
    with pytest.raises(ValueError, match="a step of its own"):
        dynamics.Revisions([saved[0], saved[0]])
    with pytest.raises(ValueError, match="say with path="):
        dynamics.Revisions(["some/model@step4"])
    hub = dynamics.Revisions(["some/model@step4"], path=tmp_path)
    with pytest.raises(FileNotFoundError, match="some/model@step4: no such folder"):
        hub.load(4)
    with pytest.raises(ValueError, match="only models of the hub have revisions"):
        interp.load_hugging_face(saved[0], revision="main")


def test_a_checkpoint_that_is_written_again_is_computed_again(tmp_path):
    pytest.importorskip("transformers")
    from tests.hugging_face_models import make
    from tests.scrambled import scramble

    folders, model = [tmp_path / f"checkpoint-{step}" for step in (1, 2)], make("neox")
    for folder in folders:
        model.save_pretrained(folder)
    tokens = some_tokens(d_vocab=40)
    ask = {"statistics": ("previous_token", "kl_to_final")}
    before = dynamics.over_checkpoints(folders, tokens, **ask)
    scramble(model, 0.5)
    model.save_pretrained(folders[1])
    after = dynamics.over_checkpoints(folders, tokens, **ask)
    fresh = dynamics.over_checkpoints(folders, tokens, **ask, cache=False)
    assert torch.equal(after.previous_token[1], fresh.previous_token[1])
    assert not torch.equal(after.previous_token[1], before.previous_token[1])
    assert after.kl_to_final[0].max() > 1e-3  # the last model is another now
    assert (tmp_path / dynamics.Revisions(folders).path.name / "dynamics").is_dir()
