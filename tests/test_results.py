import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.results import Result, atomic_path, write_atomic


@dataclass(frozen=True)
class Sweep(Result):
    axes = {
        "effect": ("layer", "head"),
        "clean": (),
        "by_head": ("head",),
        "per_example": ("layer", "head", "example"),
        "extra": ("layer",),
    }
    effect: Tensor
    clean: Tensor
    by_head: Tensor
    per_example: Tensor
    metric: str = "loss"
    extra: Tensor | None = None


@dataclass(frozen=True)
class Curve(Result):
    axes = {"score": ("step", "head")}
    coordinates = {"step": "steps"}
    score: Tensor
    steps: tuple[int, ...]


def sweep(**changes) -> Sweep:
    parts = {
        "effect": torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, torch.nan]]),
        "clean": torch.tensor(2.0),
        "by_head": torch.tensor([7, 8, 9]),
        "per_example": torch.arange(24.0).view(2, 3, 4),
    }
    return Sweep(**(parts | changes))


def test_frame_is_tidy_and_carries_fields_with_fewer_axes():
    table = sweep().frame()
    assert list(table.columns) == ["layer", "head", "effect", "clean", "by_head"]
    assert table["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["head"].tolist() == [0, 1, 2, 0, 1, 2]
    assert table["by_head"].tolist() == [7, 8, 9, 7, 8, 9]
    assert table["clean"].tolist() == [2.0] * 6
    assert table["effect"][3] == pytest.approx(0.4)


def test_frame_of_a_larger_field_repeats_the_smaller_ones():
    table = sweep().frame("per_example")
    assert len(table) == 24
    row = table[(table.layer == 1) & (table["head"] == 0) & (table.example == 2)]
    assert row.per_example.item() == 14.0
    assert row.effect.item() == pytest.approx(0.4)


def test_frame_names_what_it_could_show():
    with pytest.raises(ValueError, match=r"effect.*not for 'extra'"):
        sweep().frame("extra")


def test_coordinates_stand_in_the_table_and_the_file(tmp_path):
    curve = Curve(torch.zeros(2, 1), steps=(10, 400))
    assert curve.frame()["step"].tolist() == [10, 400]
    written = json.loads(curve.save(tmp_path / "curve.json").read_text())
    assert written["coordinates"] == {"step": "steps"}
    assert written["metadata"] == {"steps": [10, 400]}


def test_coordinates_that_are_a_tensor_are_not_repeated_as_a_column():
    @dataclass(frozen=True)
    class Timed(Result):
        axes = {"loss": ("step",), "steps": ("step",), "best": ()}
        coordinates = {"step": "steps"}
        loss: Tensor
        steps: Tensor
        best: Tensor

    timed = Timed(torch.zeros(2), torch.tensor([10, 400]), torch.tensor(0.5))
    assert timed.frame().to_dict("list") == {
        "step": [10, 400],
        "loss": [0.0, 0.0],
        "best": [0.5, 0.5],
    }
    assert timed.frame("best").to_dict("list") == {"best": [0.5]}


def test_an_empty_result_is_shown():
    assert "score" in repr(Curve(torch.zeros(0, 2), steps=()))


def test_a_tensor_without_its_axes_is_refused():
    with pytest.raises(ValueError, match=r"effect wants the axes \['layer', 'head'\], got .*\[6\]"):
        sweep(effect=torch.zeros(6))
    with pytest.raises(ValueError, match="by_head has 4 along 'head', another field has 3"):
        sweep(by_head=torch.zeros(4))


def test_axes_of_a_field_that_is_not_there_are_refused():
    @dataclass(frozen=True)
    class Wrong(Result):
        axes = {"efect": ("layer",)}
        effect: Tensor

    with pytest.raises(TypeError, match=r"Wrong has no field \['efect'\]"):
        Wrong(torch.zeros(2))


def test_saved_numbers_read_back_with_axes_and_metadata(tmp_path):
    path = sweep().save(tmp_path / "deep" / "sweep.json")
    written = json.loads(path.read_text())
    assert written["result"] == "Sweep"
    assert written["axes"]["effect"] == ["layer", "head"]
    assert written["values"]["effect"] == [[0.1, 0.2, 0.3], [0.4, 0.5, None]]
    assert written["metadata"] == {"metric": "loss"}
    assert "extra" not in written["values"]


def test_infinities_are_words_since_json_has_none(tmp_path):
    path = sweep(clean=torch.tensor(-torch.inf)).save(tmp_path / "sweep.json")
    assert json.loads(path.read_text())["values"]["clean"] == "-inf"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_dtype_and_tensors_on_a_graph_are_shown_and_saved(dtype, tmp_path):
    effect = torch.full((2, 3), 0.5, dtype=dtype, requires_grad=True) * 1
    result = sweep(effect=effect)
    assert result.frame()["effect"].tolist() == [0.5] * 6
    assert json.loads(result.save(tmp_path / "x").read_text())["values"]["effect"][0][0] == 0.5
    assert "0.5" in repr(result)


def test_metadata_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(TypeError, match="tensors, numbers, text"):
        sweep(metric=object()).save(tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_metadata_of_common_kinds_is_written():
    made = sweep(metric={"path": Path("a"), "n": np.int64(3), "x": (1, float("nan"))}).to_dict()
    assert made["metadata"]["metric"] == {"path": "a", "n": 3, "x": [1, None]}


def test_repr_is_a_table_not_a_dump():
    text = repr(sweep())
    assert "tensor(" not in text
    assert "layer" in text
    assert "metric: loss" in text
    assert "per_example: layer 2 × head 3 × example 4, mean 11.5, from 0 to 23" in text
    many = repr(Curve(torch.rand(300, 12), steps=tuple(range(300))))
    assert many.count("\n") < 40


def test_html_is_escaped():
    page = sweep(metric="<script>")._repr_html_()
    assert "<table" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_results_compare_by_identity_and_can_be_keys():
    one = sweep()
    assert one == one
    assert one != sweep()
    assert one in {one}


def test_to_moves_tensors_and_keeps_the_rest():
    moved = sweep(metric="accuracy").to("cpu")
    assert moved.metric == "accuracy"
    assert moved.extra is None


def test_write_atomic_replaces_whole_files(tmp_path):
    path = write_atomic(tmp_path / "new" / "a.txt", "old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_atomic(tmp_path / "a.txt", "old")
    with pytest.raises(RuntimeError, match="killed"), atomic_path(path) as temporary:
        temporary.write_text("half of it")
        raise RuntimeError("killed")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
