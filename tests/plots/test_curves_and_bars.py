"""Bars of effects, lines over training: what is drawn is what was given."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from interp import plots
from interp.plots import theme

ROWS = [
    {"step": 0, "train_loss": 4.2, "held_out_loss": 4.1, "accuracy": 0.0},
    {"step": 10, "train_loss": 3.0, "held_out_loss": 3.5, "accuracy": 0.1},
    {"step": 100, "train_loss": 0.5, "held_out_loss": 0.75, "accuracy": 0.9},
]


@dataclass
class Run:
    metrics: list = field(default_factory=lambda: ROWS)


def test_bars_keep_their_order_their_sign_and_their_intervals():
    fig = plots.effect_bars(
        ["all", "one"], [5.5, -0.25], intervals=[[5.0, 6.5], [-0.5, 0.25]], groups=["a", "b"]
    )
    bars = [t for t in fig.data if t.type == "bar"]
    assert [t.x.tolist() for t in bars] == [[5.5], [-0.25]]
    assert [list(t.marker.color)[0] for t in bars] == [theme.POSITIVE, theme.NEGATIVE]
    assert bars[0].error_x.array.tolist() == [1.0]
    assert bars[0].error_x.arrayminus.tolist() == [0.5]
    assert [a.text for a in fig.layout.annotations] == ["a", "b"]
    assert "it was helping" in plots.about(fig).sign
    assert "all +5.5" in plots.about(fig).alt


def test_a_bar_without_a_number_is_a_cross_and_counted():
    fig = plots.effect_bars(["a", "b"], [1.0, float("nan")])
    assert np.isnan(fig.data[0].x[1])
    assert fig.data[-1].marker.symbol == "x-thin"
    assert fig.data[-1].y.tolist() == [1]
    assert "1 bar without a number" in plots.about(fig).notes[-1]


def test_an_interval_given_as_plus_minus_is_refused():
    with pytest.raises(ValueError, match="not ±"):
        plots.effect_bars(["a"], [5.0], intervals=[[-0.5, 0.5]])
    with pytest.raises(ValueError, match="as many labels"):
        plots.effect_bars(["a", "b"], [5.0])


def test_direct_logit_attribution_says_whom_a_part_speaks_for():
    fig = plots.logit_attribution(["embedding", "<b>L0H0</b>"], torch.tensor([0.5, -1.0]))
    assert "speaks for the answer" in plots.about(fig).sign
    assert fig.layout.yaxis.ticktext[1] == "&lt;b&gt;L0H0&lt;/b&gt;"


@pytest.mark.parametrize(
    "given",
    [Run(), ROWS, {k: [row[k] for row in ROWS] for k in ("step", "train_loss", "held_out_loss")}],
    ids=["run", "rows", "arrays"],
)
def test_a_run_its_rows_and_arrays_draw_the_same_losses(given):
    fig = plots.loss_curve(given)
    assert [t.name for t in fig.data] == ["train loss", "held out loss"]
    assert fig.data[1].y.tolist() == [4.1, 3.5, 0.75]
    assert fig.data[0].customdata.tolist() == [0, 10, 100]
    assert "train loss goes from 4.20 at step 0 to 0.50 at step 100" in plots.about(fig).alt.lower()


def test_lines_differ_in_dash_and_colour():
    lines = plots.scores_by_step([1, 2], {f"L1H{h}": [0, 1] for h in range(8)}).data
    assert [t.line.color for t in lines] == list(theme.OKABE_ITO)
    assert len({t.line.dash for t in lines}) == 8


def test_the_formation_window_is_shaded_where_it_is_on_a_logarithmic_axis():
    fig = plots.loss_curve(ROWS, window=(10, 50), marks={"cut": 20}, levels={"guess": 4.16})
    (shade,) = [s for s in fig.layout.shapes if s.type == "rect"]
    assert (shade.x0, shade.x1) == (10, 50)
    words = {a.text: a.x for a in fig.layout.annotations}
    assert words["heads form"] == pytest.approx(1)  # log10
    assert words["cut"] == pytest.approx(np.log10(20))
    assert "guess: 4.16" in words
    assert "10 to 50" in plots.about(fig).alt


def test_losses_without_steps_or_without_losses_are_refused():
    with pytest.raises(ValueError, match="there is none yet"):
        plots.loss_curve([])
    with pytest.raises(ValueError, match="ends in 'loss'"):
        plots.loss_curve({"step": [1], "accuracy": [0.5]})
    with pytest.raises(ValueError, match="2 numbers for 3 steps"):
        plots.scores_by_step([1, 2, 3], {"a": [0, 1]})


def test_what_was_not_measured_has_no_point_and_what_is_no_number_is_counted():
    later = [{"step": 200, "train_loss": 0.4, "held_out_loss": None}]
    fig = plots.loss_curve([*ROWS, *later])
    assert fig.data[1].customdata.tolist() == [0, 10, 100]
    assert plots.about(fig).notes == ()
    assert [t.name for t in plots.loss_curve(later).data] == ["train loss"]
    assert plots.loss_curve(ROWS[:1], window=(0, 5)).data[0].x.tolist() == [1]  # a run's first row
    fig = plots.loss_curve([*ROWS, {"step": 200, "train_loss": float("nan")}])
    assert "1 point without a number" in plots.about(fig).notes[0]


def test_an_infinite_loss_is_left_out_of_the_room_for_its_axis():
    rows = [{"step": n, "train_loss": loss} for n, loss in enumerate((3.0, float("inf"), 1.0))]
    fig = plots.loss_curve(rows)
    assert fig.data[0].y.tolist() == [3.0, float("inf"), 1.0]
    rows[1]["train_loss"] = 2.0
    assert fig.layout.margin == plots.loss_curve(rows).layout.margin


def test_loss_by_position_starts_at_position_zero():
    fig = plots.loss_by_position({"clean": [4, 3, 1], "ablated": torch.tensor([4.0, 4.0])})
    assert fig.data[0].x.tolist() == [0, 1, 2]
    assert fig.data[1].y.tolist() == [4, 4]
