"""Every head's pattern in one picture: a PNG of a few hundred kilobytes instead of 144 subplots."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

from interp.plots import grid, theme
from interp.plots.arrays import Numbers, as_floats, count_missing, some
from interp.plots.figure import Figure, finish
from interp.plots.heads import head_names
from interp.plots.pooling import max_pool, pool_factor
from interp.plots.scales import rgb

TILE_CELLS, TILE_PIXELS, GAP = 64, 96, 4
MASKED, MISSING, NOTHING = 253, 254, 255  # codes beside the 0 … 252 of the weights
INKS = {"light": (16, 92, 178), "dark": (122, 188, 255)}
GREY, BROWN = (128, 128, 128), rgb(theme.MISSING_HATCH)


def png(codes: UInt8[np.ndarray, "row column"], palette: UInt8[np.ndarray, "256 4"]) -> bytes:
    """A PNG whose pixels are entries of a palette of red, green, blue and opacity.

    Source: W3C, Portable Network Graphics (third edition), colour type 3.
    """
    height, width = codes.shape
    rows = np.pad(codes, ((0, 0), (1, 0))).tobytes()  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", palette[:, :3].tobytes())]
    parts += [(b"tRNS", palette[:, 3].tobytes()), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def palette(ink: tuple[int, int, int]) -> UInt8[np.ndarray, "256 4"]:
    """One ink, as opaque as the weight is large: 0 is the page, whatever colour that has."""
    colors = np.zeros((256, 4), np.uint8)
    colors[:, :3] = ink
    colors[:MASKED, 3] = np.linspace(0, 255, MASKED)
    colors[MASKED], colors[MISSING] = (*GREY, 50), (*BROWN, 160)
    colors[NOTHING] = 0
    return colors


def attention_thumbnails(
    patterns: Numbers,
    *,
    causal: bool = True,
    title: str = "What does each head's attention look like?",
    selected: tuple[int, int] | None = None,
    pooled_from: int | None = None,
    theme: str = "light",
) -> Figure:
    """Small maps of all heads, layer down (first on top) and head across, as one image.

    Each map is queries down and keys across, on a fixed [0, 1]; at most 64 cells a side, each
    the largest of its block. Clicking gives x = head, y = layer.

    Args:
        patterns: [L H T T], or a list of L tensors [H T T].
        causal: draw what lies above the diagonal as masked.
        title: the question asked.
        selected: a (layer, head) to outline.
        pooled_from: how many tokens a side has, where the caller has pooled already.
        theme: "light" or "dark".

    Raises:
        ValueError: another shape, or numbers that are no probabilities.
    """
    _theme.check_theme(theme)
    array = _probabilities(patterns)
    layers, heads, rows, columns = array.shape
    across = pooled_from or columns
    image = _sheet(_codes(array, causal))
    source = "data:image/png;base64," + base64.b64encode(png(image, palette(INKS[theme]))).decode()
    fig = Figure()
    fig.add_layout_image(
        source=source, xref="x", yref="y", x=-0.5, y=-0.5, sizex=heads, sizey=layers,
        xanchor="left", yanchor="top", sizing="stretch", layer="below",
    )  # fmt: skip
    cells = grid.targets(head_names(array[:, :, 0, 0]), heads)
    fig.add_trace(cells.update(meta={"sheet": [layers, heads, rows, columns]}))
    fig.add_traces(grid.selection(selected, (layers, heads)))
    fig.update_layout(
        xaxis=grid.counted_axis(heads, "head", prefix="H"),
        yaxis=grid.counted_axis(layers, "layer (first on top)", prefix="L", down=True),
        hoverdistance=-1,
    )
    fig.update_yaxes(scaleanchor="x", constraintoward="top")
    fig.update_xaxes(constraintoward="left")
    return finish(
        fig,
        question=title,
        alt=f"Attention patterns of {layers} × {heads} heads over {some(across, 'key')}.",
        notes=[_pooled(pooled_from or rows, across), _missing(array)],
        theme=theme,
        height=int(np.clip(layers * min(110, 900 // heads), 90, 900)) + 50,
    )


def weights_on(source: str, sheet: Sequence[int]) -> Float[np.ndarray, "layer head query key"]:
    """The weights that the picture shows, read off it: [L H t t], in steps of 1/252.

    What is masked is −1, what is not a number NaN.

    Args:
        source: the picture, as `attention_thumbnails` puts it on the figure.
        sheet: layers, heads, queries and keys of what was drawn.
    """
    image = base64.b64decode(source.partition(",")[2])
    width, height = struct.unpack(">II", image[16:24])
    data = image[image.index(b"IDAT") + 4 : -16]  # behind it its checksum, and the end
    flat = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width + 1)[:, 1:]
    layers, heads, *sides = sheet
    tiles = flat.reshape(layers, height // layers, heads, width // heads).swapaxes(1, 2)
    shown = [-(-side // pool_factor(side, TILE_CELLS)) for side in sides]
    tall, wide = (max(1, TILE_PIXELS // cells) for cells in shown)
    codes = tiles[:, :, GAP:-GAP:tall, GAP:-GAP:wide]
    weights = codes.astype(np.float32) / (MASKED - 1)
    return np.select([codes == MASKED, codes == MISSING], [-1.0, np.nan], weights)


def _probabilities(patterns: Numbers) -> Float[np.ndarray, "layer head query key"]:
    array = as_floats(patterns)
    if array.ndim != 4 or 0 in array.shape:
        raise ValueError(f"patterns are [layer head query key]; got shape {list(array.shape)}")
    if np.nanmin(array, initial=0) < -1e-4 or np.nanmax(array, initial=0) > 1 + 1e-3:
        raise ValueError(
            "patterns are probabilities in [0, 1]; for scores, draw one with attention"
        )
    return array


def _pooled(rows: int, columns: int) -> str:
    block = pool_factor(rows, TILE_CELLS), pool_factor(columns, TILE_CELLS)
    if block == (1, 1):
        return "page colour = 0, full blue = 1"
    return f"each cell is the largest of {block[0]} × {block[1]}; full blue = 1"


def _missing(array: np.ndarray) -> str:
    count = count_missing(array)
    return f"{some(count, 'cell')} without a number (NaN), brown" if count else ""


def _codes(array: Float[np.ndarray, "layer head query key"], causal: bool) -> np.ndarray:
    rows, columns = array.shape[-2:]
    block = pool_factor(rows, TILE_CELLS), pool_factor(columns, TILE_CELLS)
    seen = np.tri(rows, columns, columns - rows, dtype=bool) | (not causal)
    pooled = max_pool(np.where(seen, array, np.nan), *block)
    codes = np.rint(np.clip(np.nan_to_num(pooled), 0, 1) * (MASKED - 1)).astype(np.uint8)
    codes[np.isnan(pooled)] = MISSING
    codes[..., ~max_pool(seen, *block)] = MASKED
    return codes


def _sheet(codes: UInt8[np.ndarray, "layer head row column"]) -> UInt8[np.ndarray, "row column"]:
    tall = max(
        1, TILE_PIXELS // codes.shape[2]
    )  # nearest neighbour: browsers smooth what they zoom
    wide = max(1, TILE_PIXELS // codes.shape[3])
    tiles = codes.repeat(tall, axis=2).repeat(wide, axis=3)
    tiles = np.pad(tiles, ((0, 0), (0, 0), (GAP, GAP), (GAP, GAP)), constant_values=NOTHING)
    layers, heads, height, width = tiles.shape
    return tiles.swapaxes(1, 2).reshape(layers * height, heads * width)


_theme = theme  # the module, where an argument has its name
