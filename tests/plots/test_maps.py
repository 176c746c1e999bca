"""Lens, patching, matrices, composition and circuits."""

import numpy as np
import pytest
import torch

from interp import plots
from interp.plots.matrices import largest_of
from interp.plots.pooling import max_pool, pack


def heatmap(fig):
    return next(t for t in fig.data if t.type == "heatmap")


def cells(fig):
    return next(t for t in fig.data if t.name == "cells")


def test_lens_writes_the_top_token_of_each_cell_first_layer_on_top():
    fig = plots.logit_lens([[0.1, 0.9], [0.8, 0.7]], [["a", "b"], ["<i>", "\n"]], labels=["x", "y"])
    written = {
        (int(y), int(x)): (text, t.textfont.color)
        for t in fig.data
        if t.name == "text"
        for x, y, text in zip(t.x, t.y, t.text, strict=True)
    }
    assert [written[p][0] for p in np.ndindex(2, 2)] == ["a", "b", "&lt;i&gt;", "↵"]
    assert heatmap(fig).z.tolist() == np.float32([[0.1, 0.9], [0.8, 0.7]]).tolist()
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]
    assert "says &lt;i&gt;" in cells(fig).hovertext[2]
    assert written[0, 0][1] != written[0, 1][1]  # 0.1 is pale, 0.9 is dark
    with pytest.raises(ValueError, match="words are 1 lists of 2"):
        plots.logit_lens([[0.1, 0.9]], [["a"]])


def test_patching_is_on_minus_one_to_one_and_marks_what_lies_beyond():
    fig = plots.patching_heatmap([[0.5, 1.5], [0.0, -0.2]])
    assert (fig.layout.coloraxis.cmin, fig.layout.coloraxis.cmax) == (-1, 1)
    (mark,) = [t for t in fig.data if t.name == "beyond"]
    assert (mark.y.tolist(), mark.x.tolist()) == ([0], [1])
    assert "up to +1.5" in plots.about(fig).notes[0]
    assert "1 (blue) = as clean" in plots.about(fig).sign
    free = plots.patching_heatmap([[0.5, 1.5]], normalized=False, across="head")
    assert free.layout.coloraxis.cmax == 1.5
    assert free.layout.xaxis.title.text == "head"


def test_matrix_is_symmetric_about_zero_with_row_zero_on_top():
    fig = plots.matrix_heatmap([[3.0, 0.0], [0.0, -1.0]], rows=["a", "b"], columns=["a", "b"])
    assert fig.layout.coloraxis.cmin == -3
    assert fig.layout.yaxis.ticktext[0] == "0 a"
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]
    assert "mean on the diagonal 1.00, overall 0.50" in plots.about(fig).alt


def test_a_large_matrix_keeps_its_largest_entries_with_their_sign():
    matrix = np.zeros((600, 500), np.float32)
    matrix[7, 8] = -5
    fig = plots.matrix_heatmap(matrix)
    assert heatmap(fig).z.shape == (200, 250)
    assert heatmap(fig).z[2, 4] == -5
    assert "600 × 500 → 200 × 250" in plots.about(fig).notes[0]
    assert len(fig.to_json()) < 2_000_000
    assert np.isnan(largest_of(np.full((3, 3), np.nan), 2, 2)).all()


def test_singular_values_are_bars_and_complex_eigenvalues_points():
    bars = plots.spectrum(torch.tensor([1.0, 3.0, 2.0])).data[0]
    assert (bars.type, bars.y.tolist()) == ("bar", [3, 2, 1])
    fig = plots.spectrum(torch.tensor([1 + 1j, 1 - 1j, -2 + 0j]))
    assert fig.data[0].y.tolist() == [1, -1, 0]
    assert list(fig.data[0].marker.symbol) == ["circle", "circle", "x"]
    assert "+0.00" in plots.about(fig).alt


def planted():
    scores = np.full((2, 2, 2, 2), 0.1)
    scores[0, 1, 1, 0] = 0.7  # L0H1 feeds L1H0
    return scores


def test_composition_is_writer_down_reader_across_and_hatched_where_impossible():
    fig = plots.composition_heatmap(planted(), threshold=0.5)
    z = heatmap(fig).z
    assert z[1, 2] == np.float32(0.7)
    assert np.isnan(z[2:]).all()
    assert np.isnan(z[:, :2]).all()
    assert plots.about(fig).notes[0] == "1 of 4 at 0.5 or more, 70% of the total"
    assert "L0H1 → K of L1H0 0.70" in plots.about(fig).alt
    assert len(plots.numbers(fig)) == 4
    below = plots.composition_heatmap(planted() - 0.2)  # a baseline taken off: negative ones too
    assert below.layout.coloraxis.cmin == -below.layout.coloraxis.cmax


def test_pairs_are_signed_written_in_their_cells_and_have_no_diagonal():
    values = [[np.nan, 0.5, np.nan], [0.5, 9.9, -0.25], [np.nan, -0.25, np.nan]]
    fig = plots.interaction_heatmap(values, ["L0H0", "L0H1", "L1H0"])
    z = heatmap(fig).z
    assert np.isnan(np.diagonal(z)).all()
    assert (fig.layout.coloraxis.cmin, fig.layout.coloraxis.cmax) == (-0.5, 0.5)
    written = sorted(text for t in fig.data if t.name == "text" for text in t.text)
    assert written == ["+0.50", "+0.50", "−0.25", "−0.25"]
    about = plots.about(fig)
    assert about.alt.endswith("L0H0 and L0H1 +0.50 and L0H1 and L1H0 -0.25.")
    assert about.notes[1] == "1 pair without a number (NaN), crossed out"
    assert cells(fig).hovertext[1].startswith("L0H0 and L0H1")
    with pytest.raises(ValueError, match="a square"):
        plots.interaction_heatmap(values, ["L0H0", "L0H1"])


def test_graph_shows_strong_edges_and_the_share_that_they_hold():
    fig = plots.composition_graph(planted(), threshold=0.5)
    rows = plots.numbers(fig)
    assert rows[["source", "target", "kind"]].to_numpy().tolist() == [["L0H1", "L1H0", "K"]]
    assert plots.about(fig).notes[0] == "showing 1 of 4 at 0.5 or more, 70% of the total"
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]
    all_of_them = plots.composition_graph(planted())
    assert "4 of 4" in plots.about(all_of_them).notes[0]


def test_edges_carry_their_evidence_and_must_have_their_nodes():
    nodes = {"L0H0": (0, 0), "L1H1": (1, 1)}
    edge = plots.Edge("L0H0", "L1H1", -0.5, "Q", "cutting it: −0.4")
    fig = plots.circuit(nodes, [edge])
    (line,) = [t for t in fig.data if t.mode == "lines+markers"]
    assert line.line.dash == "dash"
    assert (line.x, line.y) == ((0, 1), (0, 1))
    assert "cutting it: −0.4" in next(t for t in fig.data if t.name == "edges").hovertext[0]
    with pytest.raises(ValueError, match="'L9H9'"):
        plots.circuit(nodes, [plots.Edge("L0H0", "L9H9", 1.0)])
    with pytest.raises(ValueError, match="not 'O'"):
        plots.circuit(nodes, [plots.Edge("L0H0", "L1H1", 1.0, "O")])


def test_max_pooling_keeps_single_bright_cells_and_leaves_nan_only_to_empty_blocks():
    values = np.zeros((5, 4))
    values[1, 1], values[4, :2] = 1, np.nan
    pooled = max_pool(values, 2, 2)
    assert pooled.shape == (3, 2)
    assert pooled[0, 0] == 1
    assert np.isnan(pooled[2, 0])
    assert pooled[2, 1] == 0


def test_bytes_are_within_half_a_step():
    values = np.random.default_rng(0).uniform(-2, 3, 1000)
    packed = pack(values, -2.0, 3.0)
    back = packed.low + packed.codes / 255 * (packed.high - packed.low)
    assert np.abs(back - values).max() <= 5 / 255 / 2 + 1e-6
