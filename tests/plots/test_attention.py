"""Attention maps: orientation, masks, outlines, sizes."""

import numpy as np
import pytest
import torch

from interp import plots
from interp.plots import theme
from interp.plots.grid import rectangles


def uniform(n):
    return np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]


def heatmaps(fig):
    return [t for t in fig.data if t.type == "heatmap"]


def named(fig, name):
    return [t for t in fig.data if t.name == name]


def test_planted_previous_token_head_is_bright_where_the_labels_say():
    pattern = np.eye(6, k=-1)
    pattern[0, 0] = 1
    labels = list("abcdef")
    fig = plots.attention(pattern, labels)
    (map_,) = heatmaps(fig)
    assert map_.z[5, 4] == 1  # query 5 looks at key 4, drawn at y=5, x=4
    assert fig.layout.yaxis.ticktext[5] == "5 f"
    assert fig.layout.xaxis.ticktext[4] == "4 e"
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]  # query 0 on top
    assert "query" in fig.layout.yaxis.title.text
    assert "key" in fig.layout.xaxis.title.text
    assert map_.hovertemplate.startswith("query %{y}<br>→ key %{x}")


def test_probabilities_are_blue_on_a_fixed_range():
    axis = plots.attention(uniform(4) * 0.9).layout.coloraxis
    assert (axis.cmin, axis.cmax) == (0, 1)
    assert (axis.colorscale[0][1], axis.colorscale[-1][1]) == (theme.BLUES[0], theme.BLUES[-1])


def test_zero_is_the_page_in_either_theme():
    dark = plots.attention(uniform(4), theme="dark").layout.coloraxis
    assert dark.colorscale[0][1] == "#0e1117"
    assert plots.attention(uniform(4)).layout.coloraxis.colorscale[0][1] == "#ffffff"


def test_a_range_that_ends_at_the_largest_weight_is_asked_for_and_announced():
    fig = plots.attention(np.full((2, 4), 0.25), causal=False, full_range=False)
    assert fig.layout.coloraxis.cmax == 0.25
    assert "colours end at 0.25, not at 1" in plots.about(fig).notes


def test_masked_cells_are_hatched_grey_and_not_zero():
    fig = plots.attention(uniform(3))
    assert np.isnan(heatmaps(fig)[0].z[0, 1:]).all()
    (grey,) = named(fig, "not visible")
    assert grey.fillpattern.shape == "/"
    assert grey.fillcolor == theme.MASKED
    assert not named(plots.attention(np.full((3, 3), 1 / 3), causal=False), "not visible")


def test_a_weight_of_zero_on_a_visible_key_is_drawn_as_zero():
    fig = plots.attention(np.eye(3))
    assert heatmaps(fig)[0].z[2].tolist() == [0, 0, 1]


def test_nan_in_a_row_is_crossed_and_counted_apart_from_the_mask():
    pattern = uniform(4)
    pattern[2] = np.nan
    fig = plots.attention(torch.tensor(pattern, dtype=torch.bfloat16))
    (cross,) = named(fig, "not a number")
    assert cross.fillpattern.shape == "x"
    assert (np.nanmin(cross.x), np.nanmax(cross.x)) == (-0.5, 2.5)  # the three visible keys
    assert any("3 cells without a number" in note for note in plots.about(fig).notes)


def test_scores_take_minus_infinity_as_masked_and_are_centred_on_zero():
    scores = np.array([[1.0, -np.inf], [-2.0, 0.5]])
    fig = plots.attention(scores, what="scores", causal=False)
    assert fig.layout.coloraxis.cmin == -fig.layout.coloraxis.cmax
    assert named(fig, "not visible")
    assert not named(fig, "not a number")


def test_weight_where_nothing_may_look_is_refused():
    with pytest.raises(ValueError, match="the mask hides"):
        plots.attention(np.full((3, 3), 1 / 3))


def test_rows_of_a_longer_sequence_keep_their_positions_and_mask():
    pattern = uniform(8)[[2, 5]]
    fig = plots.attention(pattern, list("abcdefgh"), queries=[2, 5])
    assert fig.layout.yaxis.ticktext == ("2 c", "5 f")
    assert np.isnan(heatmaps(fig)[0].z[0, 3:]).all()
    assert not np.isnan(heatmaps(fig)[0].z[1, :6]).any()


def test_the_last_queries_are_meant_when_there_are_fewer_than_keys():
    fig = plots.attention(uniform(5)[3:], list("abcde"))
    assert fig.layout.yaxis.ticktext == ("3 d", "4 e")


def test_where_an_induction_head_should_look_is_after_earlier_occurrences():
    tokens = torch.tensor([5, 1, 2, 1, 2, 1])
    cells = {tuple(c) for c in np.argwhere(plots.where_to_look(tokens, "induction")).tolist()}
    assert cells == {(3, 2), (4, 3), (5, 2), (5, 4)}
    cells = {tuple(c) for c in np.argwhere(plots.where_to_look(tokens, "duplicate")).tolist()}
    assert cells == {(3, 1), (4, 2), (5, 1), (5, 3)}
    assert np.argwhere(plots.where_to_look(tokens, "previous")).tolist()[0] == [1, 0]
    assert plots.where_to_look(tokens, "first")[:, 0].sum() == 5
    with pytest.raises(ValueError, match="target is one of"):
        plots.where_to_look(tokens, "next")


def test_outlined_cells_are_framed_and_their_share_is_said():
    tokens = np.array([1, 2, 3, 1, 2, 3])
    target = plots.where_to_look(tokens, "induction")
    pattern = np.where(target.any(1, keepdims=True), target, np.eye(6, dtype=bool)).astype(float)
    fig = plots.attention(pattern, outline=target, outline_means="where induction looks")
    (frame,) = named(fig, "where induction looks")
    assert np.nanmin(frame.y) == 2.5  # rows 3, 4 and 5
    assert np.nanmin(frame.x) == 0.5
    assert "(where induction looks): 1.00" in plots.about(fig).alt
    indifferent = plots.attention(np.eye(6), outline=target, outline_means="x")
    assert "(x): 0.00" in plots.about(indifferent).alt


def test_several_heads_share_one_scale_and_carry_their_names():
    fig = plots.attention(np.stack([uniform(4)] * 3), names=["L0H0", "L0H1", "L1H0"])
    assert len(heatmaps(fig)) == 3
    assert {t.coloraxis for t in heatmaps(fig)} == {"coloraxis"}
    assert [a.text for a in fig.layout.annotations][:3] == ["L0H0", "L0H1", "L1H0"]
    with pytest.raises(ValueError, match="attention_thumbnails"):
        plots.attention(np.stack([uniform(4)] * 17))


@pytest.mark.parametrize("shape", [(0, 0), (4,), (1, 2, 3, 4)])
def test_no_tokens_and_other_shapes_give_one_sentence(shape):
    with pytest.raises(ValueError, match="with at least one token"):
        plots.attention(np.zeros(shape))


def test_one_token_draws():
    assert heatmaps(plots.attention([[1.0]], ["x"]))[0].z.tolist() == [[1]]


def test_1024_tokens_are_pooled_to_bytes_under_two_megabytes_and_it_says_so():
    pattern = np.zeros((1024, 1024), np.float32)
    pattern[:, 0] = 1
    pattern[777, 0], pattern[777, 333] = 0.25, 0.75
    fig = plots.attention(pattern, [f"t{i}" for i in range(1024)])
    (map_,) = heatmaps(fig)
    assert map_.z.dtype == np.uint8
    assert map_.z.shape == (512, 512)
    assert map_.z[388, 166] == round(0.75 * 255)  # a mean would have said 0.19
    assert "max-pooled 1,024 × 1,024 → 512 × 512" in plots.about(fig).notes[0]
    assert len(fig.to_json()) < 2_000_000
    assert fig.layout.coloraxis.colorbar.ticktext[-1] == "1"
    assert fig.layout.xaxis.ticktext[166] == "332–333 t332…"


def test_256_tokens_are_sent_as_they_are():
    fig = plots.attention(uniform(256))
    assert heatmaps(fig)[0].z.dtype == np.float32
    assert plots.about(fig).notes == ()


def test_a_scattered_mask_is_tiled_exactly():
    mask = np.random.default_rng(0).random((9, 7)) < 0.5
    painted = np.zeros_like(mask, dtype=int)
    for top, bottom, left, right in rectangles(mask):
        painted[top:bottom, left:right] += 1
    assert (painted == mask).all()
