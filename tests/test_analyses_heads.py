"""What the analyses of pairs and of pruning say of the demo's model."""

import json

import pytest

from analyses import are_heads_needed, backup_heads
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
