"""Thumbnails of all heads: one image, the right head in the right place."""

import base64
import io

import numpy as np
import pytest
import torch

from interp import plots
from interp.plots.sprite import INKS, palette, png

Image = pytest.importorskip("PIL.Image", reason="Pillow reads the image back")


def pixels(fig):
    (image,) = fig.layout.images
    data = base64.b64decode(image.source.removeprefix("data:image/png;base64,"))
    return np.array(Image.open(io.BytesIO(data)).convert("RGBA"))


def test_png_is_read_back_as_written():
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    colors = palette(INKS["light"])
    back = np.array(Image.open(io.BytesIO(png(codes, colors))).convert("RGBA"))
    assert (back == colors[codes]).all()


def test_layer_one_head_two_is_in_the_second_row_and_third_column():
    patterns = np.zeros((2, 3, 8, 8))
    patterns[1, 2, 5, 1] = 1  # query 5 looks at key 1
    image = pixels(plots.attention_thumbnails(patterns))
    tall, wide = image.shape[0] // 2, image.shape[1] // 3
    opaque = np.argwhere(image[..., 3] == 255)
    assert (opaque // [tall, wide] == [1, 2]).all()
    cell = (opaque.mean(0) - [tall, 2 * wide] - 4) / 12  # a margin of 4 pixels, 12 a cell
    assert cell.astype(int).tolist() == [5, 1]


def test_zero_is_transparent_and_masked_is_grey():
    image = pixels(plots.attention_thumbnails(np.zeros((1, 1, 8, 8))))
    assert image[4 + 90, 4 + 6, 3] == 0  # query 7, key 0
    assert tuple(image[4 + 6, 4 + 90]) == (128, 128, 128, 50)  # query 0, key 7


def test_nan_is_brown_and_counted():
    patterns = torch.zeros(1, 1, 4, 4, dtype=torch.bfloat16)
    patterns[0, 0, 3, 0] = torch.nan
    fig = plots.attention_thumbnails(patterns)
    assert pixels(fig)[4 + 3 * 24 + 5, 10, 3] == 160
    assert "1 cell without a number" in plots.about(fig).notes[1]


def test_144_heads_send_little_and_every_head_can_be_clicked():
    patterns = np.random.default_rng(0).random((12, 12, 128, 128), dtype=np.float32)
    fig = plots.attention_thumbnails(patterns, selected=(3, 7))
    assert len(fig.to_json()) < 1_000_000
    assert fig.data[0].hovertext[3 * 12 + 7] == "L3H7"
    assert (fig.data[0].y[43], fig.data[0].x[43]) == (3, 7)
    assert "largest of 2 × 2" in plots.about(fig).notes[0]


@pytest.mark.parametrize("bad", [np.zeros((2, 4, 4)), np.full((1, 1, 2, 2), 3.0)])
def test_other_shapes_and_scores_are_refused(bad):
    with pytest.raises(ValueError, match="patterns are"):
        plots.attention_thumbnails(bad)


@pytest.mark.parametrize("tokens", [5, 64, 100])
def test_numbers_are_read_off_the_picture(tokens):
    patterns = np.tril(np.random.default_rng(0).random((2, 3, tokens, tokens)))
    patterns[0, 1, 3, 2] = np.nan
    table = plots.numbers(plots.attention_thumbnails(patterns))
    pool = -(-tokens // 64)
    cells = -(-tokens // pool)
    assert len(table) == 2 * 3 * cells * (cells + 1) // 2  # masked cells have no row
    row = table.query("layer == 1 and head == 2 and query == 4 and key == 1").weight.item()
    block = patterns[1, 2, 4 * pool : 5 * pool, pool : 2 * pool]
    assert row == pytest.approx(block.max(), abs=0.5 / 252 + 5e-5)  # a byte; four digits
    assert table.weight.isna().sum() == (1 if pool == 1 else 0)
