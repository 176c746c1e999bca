"""What a paper reports beside what was measured here: what an experiment ends with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.results import plain, write_atomic

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Verdict = Literal["reproduced", "in part", "not reproduced"]
MARKS: dict[Verdict, str] = {"reproduced": "●", "in part": "◐", "not reproduced": "○"}
STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "td,th{vertical-align:top;text-align:left;padding:.5em;border-top:1px solid #ccc}"
)


@dataclass(frozen=True)
class Comparison:
    """One published finding, ours, and what to say of the two.

    Attributes:
        what: What was looked at.
        published: The paper's number or statement.
        ours: What came out here.
        verdict: Whether it came out again.
        because: Why not, or under which condition; empty where the numbers say it.
    """

    what: str
    published: str
    ours: str
    verdict: Verdict
    because: str = ""


def verdict(reproduced: bool, *, partly: bool = False) -> Verdict:
    """The word for an outcome: `partly` counts only where it was not reproduced in full."""
    if reproduced:
        return "reproduced"
    return "in part" if partly else "not reproduced"


def span(values: Sequence[float], form: str = ".2g") -> str:
    """The least and the largest in words; one number where they read alike."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def write(
    out: Path,
    name: str,
    comparisons: Sequence[Comparison],
    *,
    source: str,
    numbers: Mapping[str, Any],
    figure: "Figure",
    departures: Sequence[str] = (),
) -> None:
    """Print the table, and write NAME.json (table and numbers) and NAME.html (figure and table).

    Args:
        out: The folder; made if absent.
        name: Of both files.
        comparisons: The table's rows.
        source: The paper: authors, year, title.
        numbers: What the figure shows, and the settings that it was measured with.
        figure: What is seen at a glance.
        departures: Each setting that is not the paper's, in words.
    """
    for row in comparisons:
        print(f"{MARKS[row.verdict]} {row.what}\n    published: {row.published}")
        print(f"    here:      {row.ours}{'. ' + row.because if row.because else ''}")
    kept = {
        "source": source,
        "departures": list(departures),
        "comparisons": [asdict(row) for row in comparisons],
        "numbers": numbers,
    }
    text = json.dumps(plain(kept), indent=1, ensure_ascii=False)
    write_atomic(out / f"{name}.json", text + "\n")
    write_atomic(out / f"{name}.html", _page(name, comparisons, source, figure, departures))


def _page(
    name: str,
    comparisons: Sequence[Comparison],
    source: str,
    figure: "Figure",
    departures: Sequence[str],
) -> str:
    head = "".join(f"<th>{word}</th>" for word in ("", "published", "here", "verdict"))
    rows = "".join(
        f"<tr><td>{escape(row.what)}</td><td>{escape(row.published)}</td>"
        f"<td>{escape(row.ours)}</td>"
        f"<td>{MARKS[row.verdict]} {row.verdict}<br>{escape(row.because)}</td></tr>"
        for row in comparisons
    )
    changed = "".join(f"<li>{escape(line)}</li>" for line in departures)
    title = escape(name.replace("_", " "))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1><p>{escape(source)}</p>"
        f"{figure.to_html(full_html=False, include_plotlyjs=True)}"
        f"<table><tr>{head}</tr>{rows}</table>"
        f"<h2>What differs from the paper</h2><ul>{changed}</ul></html>\n"
    )
