"""Mosaics: which number is where, in which colour, and what has none."""

import numpy as np
import pytest
import torch

from interp import plots
from interp.plots import scales, theme


def trace(fig, kind, index=0):
    return [t for t in fig.data if t.type == kind][index]


def cells(fig):
    return next(t for t in fig.data if t.name == "cells")


def texts(fig):
    """What is written in the cells, by (row, column)."""
    return {
        (int(y), int(x)): text
        for t in fig.data
        if t.name == "text"
        for x, y, text in zip(t.x, t.y, t.text, strict=True)
    }


def named(fig, name):
    return [t for t in fig.data if t.name == name]


def test_layer_goes_down_from_the_top_and_head_goes_across():
    fig = plots.head_heatmap([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert trace(fig, "heatmap").z.shape == (2, 3)
    assert tuple(fig.layout.yaxis.range) == (1.5, -0.5)  # 0 on top
    assert tuple(fig.layout.xaxis.range) == (-0.5, 2.5)
    assert "layer" in fig.layout.yaxis.title.text
    assert "head" in fig.layout.xaxis.title.text


def test_the_number_at_a_cell_is_the_one_of_that_layer_and_head():
    values = np.arange(6).reshape(2, 3) / 10
    fig = plots.head_heatmap(values)
    over = cells(fig)
    place = [(int(y), int(x)) for x, y in zip(over.x, over.y, strict=True)]
    assert place == list(np.ndindex(2, 3))
    assert {p: float(t) for p, t in texts(fig).items()} == {
        p: round(float(values[p]), 2) for p in place
    }
    assert over.hovertext[5].startswith("L1H2")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_any_float_dtype_with_gradients_draws_the_same(dtype):
    values = torch.tensor([[0.5, 0.25]], dtype=dtype, requires_grad=True)
    assert trace(plots.head_heatmap(values), "heatmap").z.tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize(
    ("kind", "ends", "low", "high"),
    [
        ("score", (0, 1), "#440154", "#fde725"),
        ("entropy", (0, 1), "#00224e", "#fee838"),
        ("effect", (-0.5, 0.5), "#67001f", "#053061"),
        ("patch", (-1, 1), "#67001f", "#053061"),
    ],
)
def test_each_kind_has_its_colours_and_its_range(kind, ends, low, high):
    axis = plots.head_heatmap([[0.5, 0.25, 0.1, 0.4]], kind=kind).layout.coloraxis
    assert (axis.cmin, axis.cmax) == ends
    assert (axis.colorscale[0][1], axis.colorscale[-1][1]) == (low, high)


def test_effects_are_symmetric_about_zero_blue_positive_and_say_so():
    fig = plots.head_heatmap([[-1.0, 0.2, 0.3, 0.6]], kind="effect")
    axis = fig.layout.coloraxis
    assert axis.cmin == -axis.cmax == -1
    red, _, blue = scales.rgb(axis.colorscale[-2][1])
    assert blue > red
    words = [a.text for a in fig.layout.annotations if a.name == "colour bar"]
    assert "ablated − clean" in words[0]
    assert "blue" in words[0]
    assert "blue" in plots.about(fig).sign


def test_one_outlier_does_not_turn_the_rest_pale_and_is_marked():
    values = np.full((8, 8), 0.01)
    values[3, 4] = 9
    fig = plots.head_heatmap(values, kind="effect")
    assert fig.layout.coloraxis.cmax < 4  # three times the root mean square, 3.38
    assert "1 cell beyond the colour scale" in plots.about(fig).notes[0]
    assert texts(fig)[3, 4] == "◆ +9.00"


def test_a_score_outside_its_range_is_refused_not_clipped():
    with pytest.raises(ValueError, match=r"draws numbers in \[0, 1\]"):
        plots.head_heatmap([[3.0]])
    assert plots.head_heatmap([[3.0]], kind="amount").layout.coloraxis.cmax == 3


def test_nan_is_crossed_out_and_counted_never_zero():
    fig = plots.head_heatmap([[0.5, float("nan")], [0.0, 0.1]])
    assert np.isnan(trace(fig, "heatmap").z[0, 1])
    (cross,) = named(fig, "not a number")
    assert cross.fillpattern.shape == "x"
    assert (np.nanmin(cross.x), np.nanmax(cross.x)) == (0.5, 1.5)
    assert (np.nanmin(cross.y), np.nanmax(cross.y)) == (-0.5, 0.5)
    assert "1 cell without a number" in plots.about(fig).notes[0]
    assert (0, 1) not in texts(fig)
    assert not named(plots.head_heatmap([[0.5, 0.0]]), "not a number")  # control


def test_near_uniform_heads_are_ringed_from_the_threshold_that_is_shown():
    fig = plots.head_heatmap([[0.89, 0.9], [0.95, float("nan")]], kind="entropy")
    (ring,) = named(fig, "ringed")
    assert sorted(zip(ring.y.tolist(), ring.x.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert "0.9 or more (2 heads)" in plots.about(fig).notes[0]
    assert "L0H1 and L1H0" in plots.about(fig).alt
    assert not named(plots.head_heatmap([[0.89]], kind="entropy"), "ringed")


def test_a_ring_mask_replaces_the_threshold_and_both_are_refused():
    fig = plots.head_heatmap([[0.1, 0.2]], ring=torch.tensor([[True, False]]))
    assert named(fig, "ringed")[0].x.tolist() == [0]
    with pytest.raises(ValueError, match="not both"):
        plots.head_heatmap([[0.1]], ring=np.array([[True]]), threshold=0.5)


def test_every_cell_can_be_clicked_through_an_invisible_square():
    fig = plots.head_heatmap(np.zeros((3, 5)))
    over = cells(fig)
    assert over.marker.opacity == 0
    assert over.marker.symbol == "square"
    assert len(over.x) == 15
    assert trace(fig, "heatmap").hoverinfo == "skip"
    assert over.unselected.marker.opacity == 0  # nor does it appear when another one is clicked
    assert fig.layout.hoverdistance == -1  # the whole cell answers, not only its middle


def test_the_selected_head_is_outlined_and_must_exist():
    (frame,) = named(plots.head_heatmap(np.zeros((2, 4)), selected=(1, 3)), "selected")
    assert (np.nanmin(frame.y), np.nanmin(frame.x)) == (0.5, 2.5)
    with pytest.raises(ValueError, match="a cell of 2 × 4"):
        plots.head_heatmap(np.zeros((2, 4)), selected=(2, 0))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", list(scales.SCALES))
def test_text_stands_out_from_its_cell_in_both_themes(kind, dark):
    span = (-1.0, 1.0) if scales.scale_of(kind).diverging else (0.0, 1.0)
    values = np.linspace(*span, 101)
    swap = theme.LIGHT_TO_DARK if dark else {}
    for value, ink in zip(values, scales.inks(values, kind, span=span), strict=True):
        cell = scales.color_at(value, kind, span=span, dark=dark)
        # One of two inks always reaches 4.4; swapped scales cross over at slightly other places.
        assert scales.contrast(swap.get(ink, ink), cell) > 4.0, (value, cell, ink)


def test_comparison_is_on_one_scale_and_refuses_other_shapes():
    fig = plots.head_comparison([[0.1, 0.2]], [[3.0, 0.4]], kind="amount", names=("run A", "B"))
    assert fig.layout.coloraxis.cmax == 3
    assert {t.coloraxis for t in fig.data if t.type == "heatmap"} == {"coloraxis"}
    assert [trace(fig, "heatmap", i).z.tolist()[0][0] for i in (0, 1)] == pytest.approx([0.1, 3])
    with pytest.raises(ValueError, match="one shape"):
        plots.head_comparison([[0.1]], [[0.1, 0.2]])


def test_difference_is_right_minus_left():
    fig = plots.head_difference([[0.25]], [[0.75]], names=("A", "B"))
    assert trace(fig, "heatmap").z.tolist() == [[0.5]]
    assert plots.about(fig).formula == "B − A"


def test_heads_over_steps_have_one_row_a_head_and_one_column_a_checkpoint():
    values = np.arange(12).reshape(3, 2, 2) / 12
    fig = plots.heads_by_step(values, [1, 10, 100])
    z = trace(fig, "heatmap").z
    assert z[3].tolist() == values[:, 1, 1].astype("f4").tolist()
    assert fig.layout.yaxis.ticktext == ("L0H0", "L0H1", "L1H0", "L1H1")
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]
    with pytest.raises(ValueError, match="as many steps"):
        plots.heads_by_step(values, [1, 2])


@pytest.mark.parametrize("bad", [[0.1, 0.2], np.zeros((0, 4)), np.zeros((2, 2, 2))])
def test_another_shape_is_refused_in_words(bad):
    with pytest.raises(ValueError, match=r"values is \[layer head\]"):
        plots.head_heatmap(bad)
