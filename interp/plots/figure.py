"""The figure that all functions here return: plotly's, with words, a theme and offline display."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go

from interp.plots import offline, theme
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
    """
    _theme.check_theme(theme)
    notes = [note for note in notes if note]
    lines = wrap(" · ".join(notes)) if notes else []
    top = (top or (BAR_BAND if bar else 12)) + (BAR_LINE if _in_two(bar) else 0)
    band = TITLE_BAND + NOTE_LINE * len(lines)
    words = About(question, alt, formula, sign, tuple(notes), theme, band, least_width)
    fig.update_layout(
        template=_theme.template(),
        title={"text": escape(question), "subtitle": {"text": "<br>".join(map(escape, lines))}},
        meta=asdict(words),
        margin={"t": words.band + top, "b": 12, "l": 12, "r": 18},
        height=height + words.band + top + 12,
    )
    if bar:
        fig.add_annotation(_bar_title(bar, top))
        ticks = {"size": 11, "color": _theme.SOFT_INK}
        fig.update_layout(coloraxis_colorbar_tickfont=ticks)
    _place(fig, words.band)
    return in_theme(fig, theme)


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


def _place(fig: go.Figure, band: int) -> None:
    """Put title and colour bar at their distance from the top, which plotly wants as a share.

    The bar is anchored by its middle: plotly.js 4.1 shifts every title on the page where a
    horizontal bar is anchored by its bottom.
    """
    fig.update_layout(title_y=1 - 30 / fig.layout.height)
    if fig.layout.coloraxis.colorscale is None or fig.layout.coloraxis.showscale is False:
        return
    bar = {"orientation": "h", "len": 230, "lenmode": "pixels", "thickness": 9}
    bar |= {"x": 0, "xanchor": "left", "xpad": 0, "ypad": 0, "outlinewidth": 0}
    lines = [note.text.count("<br>") for note in fig.layout.annotations if note.name == BAR_NAME]
    down = band + 28 + BAR_LINE * sum(lines)
    bar |= {"y": 1 - down / fig.layout.height, "yref": "container", "yanchor": "middle"}
    fig.update_layout(coloraxis_colorbar=bar)


def in_theme(fig: go.Figure, theme: str) -> Figure:
    """A copy of a light figure in the theme asked for."""
    _theme.check_theme(theme)
    parts: Any = fig  # to_dict would turn its arrays into base64
    spec = {
        "data": [trace.to_plotly_json() for trace in parts.data],
        "layout": parts.layout.to_plotly_json(),
    }
    if theme == "dark":
        spec = _theme.repaint(spec)
    return Figure(spec)


def without_title(fig: go.Figure) -> Figure:
    """A copy without title and notes, for a page that sets them as text: `about` still has them."""
    words = about(fig)
    bare = Figure(fig)
    bare.update_layout(
        title={"text": "", "subtitle": {"text": ""}},
        margin={"t": fig.layout.margin.t - words.band},
        height=fig.layout.height - words.band,
    )
    _place(bare, 0)
    return bare


_theme = theme  # the module, where an argument has its name
