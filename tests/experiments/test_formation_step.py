"""The step of formation: by training's measurements as by its checkpoints."""

from pathlib import Path

import pytest

from interp.runs import Run
from tests.demonstration import trained_demo

ANALYSES = Path(__file__).parents[2] / "analyses"


def test_metrics_and_checkpoints_agree_on_the_demo(tmp_path_factory, monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import formation_step

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # workers share a parent
    run = Run(trained_demo(shared / "demo-runs") / "demo")
    found = formation_step.followed(run, 0)
    assert abs(found.difference) <= formation_step.AGREES
    low, high = found.dense.low, found.dense.high
    assert low < found.dense.step < high
    assert found.heads
    assert all(name.startswith("L1") for name in found.heads)
    one_late = [*run.metrics[:4], run.metrics[-2], run.metrics[-1]]
    late = formation_step.formation_of(one_late)
    assert late is None or abs(late.step / found.dense.step - 1) > formation_step.AGREES


@pytest.mark.parametrize("shift", [0.0, 0.2])
def test_a_shift_of_a_fifth_is_no_agreement(shift, monkeypatch):
    monkeypatch.syspath_prepend(ANALYSES)
    import formation_step
    import torch

    from interp.dynamics import Formation

    found = formation_step.Found(
        seed=0,
        metrics=Formation(100.0 * (1 + shift), None, None, 1.0),
        dense=Formation(100.0, None, None, 1.0),
        heads={},
        n_metrics=3,
        n_dense=3,
        steps=[0, 1, 2],
        best=torch.zeros(3),
    )
    assert formation_step._row(found)["agrees"] == (shift == 0)
