"""Entropy in the loss: what a floor does, at the smallest size."""

import json
from pathlib import Path

import pytest

ANALYSES = Path(__file__).parents[2] / "analyses"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import entropy_regularisation

    return entropy_regularisation


def test_every_setting_can_be_trained_with(script):
    from interp.training import TrainingOptions

    for steer in script.SETTINGS.values():
        assert len(TrainingOptions.of({"steer": steer}).steer) == len(steer)


def test_never_is_later_than_any_step_and_as_late_as_itself(script):
    never, early, late = (
        script.Found(step, 0, 0, [0.0], [0.0], [], []) for step in (None, 100.0, 300.0)
    )
    assert script._all_moved([early], [never], later=True)
    assert script._all_moved([late], [early], later=False)
    assert not script._all_moved([never], [never], later=True)
    assert not script._all_moved([early, late], [late, early], later=True)


def test_a_floor_keeps_entropy_up_and_is_written(script, tmp_path):
    script.main(tmp_path, quick=True)
    runs = json.loads((tmp_path / "entropy_regularisation.json").read_text())["numbers"]["runs"]
    plain, floor = runs["none"][0], runs["floor 0.8, weight 3"][0]
    assert min(floor["sharpest"]) > min(plain["sharpest"])
    assert "entropy floor" in (tmp_path / "entropy_regularisation.html").read_text()
