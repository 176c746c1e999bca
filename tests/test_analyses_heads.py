"""What the analyses of pairs and of pruning say of the demo's model."""

import json

import pytest

from analyses import are_heads_needed, backup_heads, induction_circuit
from tests.demonstration import trained_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # workers share a parent
    return trained_demo(shared / "demo-runs") / "demo"


def test_pairs_see_one_layers_backup_and_not_the_others(demo, tmp_path):
    backup_heads.main(tmp_path, demo)
    found = json.loads((tmp_path / "backup_heads.json").read_text())
    strongest = found["strongest"][0]
    assert all(name.startswith("L0") for name in strongest["heads"])
    assert strongest["interval"][0] > 1
    second = found["layers"][1]
    assert second["together"] > 4
    assert second["with_pairs"] < 0.25 * second["together"]
    assert (tmp_path / "backup_heads.html").stat().st_size > 1000


def test_pruning_ends_where_every_order_ends(demo, tmp_path):
    are_heads_needed.main(tmp_path, demo)
    found = json.loads((tmp_path / "are_heads_needed.json").read_text())
    curves = found["loss_rise"]
    ends = [curve[-1] for curve in [*curves["random"], curves["effect when cut alone"]]]
    assert max(ends) - min(ends) < 1e-3
    assert 0 < found["can_go"]["effect when cut alone"] < 8
    assert (tmp_path / "are_heads_needed.html").stat().st_size > 1000


def test_of_all_sets_as_large_the_circuit_s_alone_says_where_to_look(demo, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "seed-0").symlink_to(demo)
    induction_circuit.main(tmp_path, seeds=1, runs=tmp_path / "runs")
    (found,) = json.loads((tmp_path / "induction_circuit.json").read_text())
    zero, held = (found["set"][kind]["effect"] for kind in ("zero", "patterns held"))
    assert abs(held) <= 0.05
    assert zero > 5
    assert found["other sets"]
    for other in found["other sets"]:
        assert other["zero"]["effect"] < zero
        assert other["patterns held"]["effect"] > held
    assert (tmp_path / "induction_circuit.html").stat().st_size > 1000
