"""The figure that all functions here return: plotly's, with words, a theme and offline display."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from interp.plots import offline, theme
from interp.plots.margins import rooms
from interp.plots.text import escape, wrap

TITLE_BAND, NOTE_LINE, BAR_BAND, BAR_LINE = 44, 17, 56, 15  # pixels
BAR_NAME = "colour bar"
BAR_WORDS = 44  # characters over a colour bar that a phone has room for


class Figure(go.Figure):
    """A plotly figure that shows in any notebook without a network.

    JupyterLab and VS Code draw plotly's own type; nbconvert and whatever else knows only HTML get
    a fragment that brings its plotly.js along. No renderer is set, no state is kept.
    """

    def _ipython_display_(self) -> None:
        """Show the bundle below; plotly's own would hand over to its global renderer."""
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None, validate: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        return offline.mimebundle(self, about(self).alt)

    def _repr_html_(self) -> str:
        return offline.fragment(self, about(self).alt)


@dataclass(frozen=True)
class About:
    """What a figure asks, what it shows in words, and how to read it."""

    question: str
    alt: str
    formula: str = ""
    sign: str = ""
    notes: tuple[str, ...] = ()
    theme: str = "light"
    band: int = 0  # pixels that the title takes
    least_width: int = 0  # pixels; narrower, and labels collide: let the reader scroll


def about(fig: go.Figure) -> About:
    """The words that belong to a figure.

    Raises:
        ValueError: it was not made by this package.
    """
    meta = fig.layout.meta
    if not isinstance(meta, dict) or "alt" not in meta:
        raise ValueError("this figure has no alt text; finish it with interp.plots.finish(fig, …)")
    return About(**{**meta, "notes": tuple(meta["notes"])})


def finish(
    fig: go.Figure,
    *,
    question: str,
    alt: str,
    formula: str = "",
    sign: str = "",
    notes: Sequence[str] = (),
    theme: str = "light",
    height: int = 320,
    top: int | None = None,
    bar: str = "",
    least_width: int = 320,
    right: int = 18,
) -> Figure:
    """The figure with its title (the question), notes under it, words for `about`, and theme.

    Args:
        fig: a figure with its traces and axes, in the colours of the light theme.
        question: what the picture answers; plain text.
        alt: the finding in words, for whoever can't see the picture.
        formula: how the numbers are made.
        sign: what positive and negative mean.
        notes: what a reader must know: what is left out, reduced, marked, clipped.
        theme: "light" or "dark".
        height: pixels of the plot itself; the title's come on top.
        top: pixels between title and plot; None: what a colour bar needs, if there is one.
        bar: what stands over the bar of the figure's `coloraxis`.
        least_width: pixels below which a page should scroll the figure rather than squeeze it.
        right: pixels beside the plot, for what stands over its edge.
    """
    _theme.check_theme(theme)
    notes = [note for note in notes if note]
    lines = wrap(" · ".join(notes)) if notes else []
    top = (top or (BAR_BAND if bar else 12)) + (BAR_LINE if _in_two(bar) else 0)
    band = TITLE_BAND + NOTE_LINE * len(lines)
    words = About(question, alt, formula, sign, tuple(notes), theme, band, least_width)
    layout = {
        "title": {"text": escape(question), "subtitle": {"text": "<br>".join(map(escape, lines))}},
        "meta": asdict(words),
        "margin": {"t": words.band + top, "b": 12, "l": 12, "r": right},
        "height": height + words.band + top + 12,
    }
    spec = _spec(fig)
    spec["layout"] = _merged(spec["layout"], layout) | {"template": {"layout": _theme.quiet()}}
    spec["layout"]["margin"] |= rooms(spec["data"], spec["layout"])
    if bar:
        _add_bar_title(spec["layout"], bar, top)
    _place(spec["layout"], words.band)
    return Figure(_theme.repaint(spec) if theme == "dark" else spec)


def _spec(fig: go.Figure) -> dict[str, Any]:
    """A figure as plain dicts: they change in a fraction of what plotly's `update_layout` takes."""
    parts: Any = fig  # to_dict would turn its arrays into base64
    return {
        "data": [trace.to_plotly_json() for trace in parts.data],
        "layout": parts.layout.to_plotly_json(),
    }


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both, nested; what is new counts."""
    both = {k: _merged(old[k], v) for k, v in new.items() if isinstance(v, dict) and k in old}
    return old | new | both


def _add_bar_title(layout: dict[str, Any], words: str, top: int) -> None:
    layout["annotations"] = [*layout.get("annotations", ()), _bar_title(words, top)]
    ticks = {"tickfont": {"size": 11, "color": _theme.SOFT_INK}}
    layout["coloraxis"] = _merged(layout.get("coloraxis", {}), {"colorbar": ticks})


def _bar_title(words: str, top: int) -> dict[str, Any]:
    """An annotation over the colour bar: plotly's own title is centred, and cut if it is long."""
    place = {"x": 0, "xref": "paper", "xanchor": "left", "xshift": -2}
    up = top - 17 - (BAR_LINE if _in_two(words) else 0)
    place |= {"y": 1, "yref": "paper", "yanchor": "bottom", "yshift": up}
    font = {"size": 12, "color": _theme.SOFT_INK}
    text = words.replace("; ", "<br>", 1) if _in_two(words) else words
    how = {"name": BAR_NAME, "showarrow": False, "align": "left", "font": font}
    return {"text": text, **how, **place}


def _in_two(words: str) -> bool:
    """Whether the sign of a colour bar goes on a line of its own."""
    return len(words) > BAR_WORDS and "; " in words


def _place(layout: dict[str, Any], band: int) -> None:
    """Put title and colour bar at their distance from the top, which plotly wants as a share.

    The bar is anchored by its middle: plotly.js 4.1 shifts every title on the page where a
    horizontal bar is anchored by its bottom.
    """
    height, axis = layout["height"], layout.get("coloraxis", {})
    layout["title"] = layout["title"] | {"y": 1 - 30 / height}
    if "colorscale" not in axis or axis.get("showscale") is False:
        return
    bar = {"orientation": "h", "len": 230, "lenmode": "pixels", "thickness": 9}
    bar |= {"x": 0, "xanchor": "left", "xpad": 0, "ypad": 0, "outlinewidth": 0}
    named = [note for note in layout.get("annotations", ()) if note.get("name") == BAR_NAME]
    down = band + 28 + BAR_LINE * sum(note["text"].count("<br>") for note in named)
    bar |= {"y": 1 - down / height, "yref": "container", "yanchor": "middle"}
    layout["coloraxis"] = _merged(axis, {"colorbar": bar})


def in_theme(fig: go.Figure, theme: str) -> Figure:
    """A copy of a light figure in the theme asked for."""
    _theme.check_theme(theme)
    spec = _spec(fig)
    return Figure(_theme.repaint(spec) if theme == "dark" else spec)


def without_title(fig: go.Figure) -> Figure:
    """A copy without title and notes, for a page that sets them as text: `about` still has them."""
    words, spec = about(fig), _spec(fig)
    layout = spec["layout"]
    margin = {"t": layout["margin"]["t"] - words.band}
    bare = {"title": {"text": "", "subtitle": {"text": ""}}, "margin": margin}
    spec["layout"] = _merged(layout, bare) | {"height": layout["height"] - words.band}
    _place(spec["layout"], 0)
    return Figure(spec)


_theme = theme  # the module, where an argument has its name
