"""What the reader sees, as numbers and as one file: CSV, JSON, HTML."""

import base64
import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from interp.plots import offline
from interp.plots.figure import about
from interp.plots.sprite import weights_on
from interp.plots.text import unescape

if TYPE_CHECKING:
    from pandas import DataFrame


def numbers(fig: go.Figure) -> "DataFrame":
    """A row for each number in the picture, with the labels of its axes.

    It is read off the figure, so it holds what the screen shows: what was pooled is pooled, what
    was left out is left out, and `about(fig).notes` says so. What is masked has no row; what is
    not a number is NaN.
    """
    import pandas as pd

    spec = json.loads(str(fig.to_json()))
    tables = [table for trace in spec["data"] for table in _tables(trace, spec["layout"])]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def to_csv(fig: go.Figure) -> str:
    """The numbers as CSV, after lines with `#` that say what they are and what was left out.

    Strings are quoted: `pandas.read_csv(file, comment="#")` reads it back.
    """
    words = about(fig)
    head = [words.question, *words.notes, words.sign, words.formula]
    lines = [f"# {line}\n" for line in head if line]
    return "".join(lines) + numbers(fig).to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)


def to_json(fig: go.Figure) -> str:
    """The numbers as JSON: `rows`, and the words that belong to them. NaN is null."""
    words = about(fig)
    rows = json.loads(str(numbers(fig).to_json(orient="records", double_precision=6)))
    about_it = {k: getattr(words, k) for k in ("question", "alt", "formula", "sign", "notes")}
    return json.dumps({**about_it, "rows": rows}, ensure_ascii=False, indent=1)


def to_html(fig: go.Figure) -> str:
    """The figure as one HTML page, plotly.js and all: it needs no network."""
    words = about(fig)
    return offline.document(fig, words.question, words.alt)


def _tables(trace: dict[str, Any], layout: dict[str, Any]) -> list["DataFrame"]:
    meta = trace.get("meta") or {}
    if "row" in meta:
        import pandas as pd

        return [pd.DataFrame([meta["row"]])]
    if "sheet" in meta:
        return [_thumbnails(layout["images"][0]["source"], meta["sheet"])]
    if "numbers" not in meta:
        return []
    return [_cells(trace, layout) if "z" in meta["numbers"] else _points(trace, layout)]


def _cells(trace: dict[str, Any], layout: dict[str, Any]) -> "DataFrame":
    import pandas as pd

    names, z = trace["meta"]["numbers"], array_of(trace["z"])
    if trace["meta"].get("bytes"):
        low, high = trace["meta"]["bytes"]
        z = (low + z.astype(np.float32) / 255 * (high - low)).round(4)
    shown = ~np.array(_covered(trace, z.shape), dtype=bool)
    rows, columns = np.nonzero(shown)
    table = _series(trace) | _named(names["y"], rows, trace.get("yaxis", "y"), layout)
    table |= _named(names["x"], columns, trace.get("xaxis", "x"), layout)
    return pd.DataFrame(table | {names["z"]: z[rows, columns]})


def _thumbnails(source: str, sheet: list[int]) -> "DataFrame":
    import pandas as pd

    weights = weights_on(source, sheet)
    names = ("layer", "head", "query", "key")
    places = np.nonzero(weights != -1)
    table = dict(zip(names, places, strict=True))
    return pd.DataFrame(table | {"weight": weights[places].round(4)})


def _covered(trace: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """Cells that are masked: `mask` in the trace's meta lists their rectangles."""
    mask = np.zeros(shape, bool)
    for top, bottom, left, right in trace["meta"].get("masked", []):
        mask[top:bottom, left:right] = True
    return mask


def _points(trace: dict[str, Any], layout: dict[str, Any]) -> "DataFrame":
    import pandas as pd

    names = trace["meta"]["numbers"]
    table = _series(trace)
    for axis, name in names.items():
        where = {} if axis == "customdata" else layout
        table |= _named(name, array_of(trace[axis]), trace.get(f"{axis}axis", axis), where)
    if "error_x" in trace:
        x, bars = array_of(trace["x"]), trace["error_x"]
        table |= {"low": x - array_of(bars["arrayminus"]), "high": x + array_of(bars["array"])}
    return pd.DataFrame(table)


def _series(trace: dict[str, Any]) -> dict[str, Any]:
    series = trace["meta"].get("series")
    return {"series": series} if series else {}


def _named(name: str, places: np.ndarray, axis: str, layout: dict[str, Any]) -> dict[str, Any]:
    """A column of places, and one of the labels that the axis shows there, if it has any."""
    spec = layout.get(f"{axis[0]}axis{axis[1:]}", {})
    if "ticktext" not in spec:
        return {name: places}
    values = [float(v) for v in array_of(spec["tickvals"])]
    labels = dict(zip(values, map(unescape, spec["ticktext"]), strict=True))
    return {name: places, f"{name} label": [labels.get(float(p), "") for p in places]}


def array_of(value: Any) -> np.ndarray:
    """An array of plotly's JSON: a list, or bytes in base64 with their type and shape."""
    if not isinstance(value, dict):
        return np.array([np.nan if v is None else v for v in value])
    flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=np.dtype(value["dtype"]))
    if "shape" not in value:
        return flat
    shape = value["shape"]
    return flat.reshape([int(n) for n in shape.split(",")] if isinstance(shape, str) else shape)
