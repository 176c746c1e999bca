"""Building blocks of a report: one HTML file with prose, figures and tables, and no network.

The page follows the reader's light or dark system: figures are stored once, in the light theme,
and their colours swapped where they are shown.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from interp.plots import offline, theme
from interp.plots.export import numbers
from interp.plots.figure import about, without_title

if TYPE_CHECKING:
    from pandas import DataFrame

LONG = 60  # characters; a table with longer cells breaks their lines
MOST_ROWS = 200  # of a figure's numbers; the file beside the report has them all


class Html(str):
    """Text that is markup already, such as `token_html` returns; all other text is escaped."""


@dataclass(frozen=True)
class Section:
    """A heading, and under it prose, figures and tables, in this order.

    `prose` is plain text, a blank line between paragraphs; `tables` are frames by their caption.
    """

    heading: str
    prose: str | Html = ""
    figures: Sequence[go.Figure] = ()
    tables: Mapping[str, "DataFrame"] = field(default_factory=dict)


def report_page(
    title: str, verdict: str | Html, *, sections: Sequence[Section], footer: str | Html = ""
) -> str:
    """The page as one string: title, verdict, sections; plotly.js is in it once.

    Figures must be in the light theme. Their question, notes and finding become text that wraps
    and can be read aloud; their numbers are a table to unfold.

    Raises:
        ValueError: a figure in the dark theme, or one without alt text.
    """
    blocks, specs = [], []
    for index, section in enumerate(sections):
        blocks.append(_section(section, index, specs))
    return PAGE.format(
        title=html.escape(title),
        style=STYLE,
        verdict=paragraphs(verdict),
        contents=_contents(sections),
        sections="\n".join(blocks),
        footer=paragraphs(footer),
        library=get_plotlyjs() if specs else "",
        specs="\n".join(specs),
        swaps=json.dumps(theme.LIGHT_TO_DARK),
        words=json.dumps(theme.WORDS),
        config=json.dumps(offline.CONFIG),
    )


def paragraphs(text: str | Html) -> str:
    """Plain text as HTML paragraphs; markup is left alone."""
    if isinstance(text, Html):
        return text
    parts = [part.strip() for part in text.split("\n\n")]
    return "\n".join(f"<p>{html.escape(part)}</p>" for part in parts if part)


def table(frame: "DataFrame", caption: str = "") -> str:
    """A frame as an HTML table: cells literal, numbers to four places, NaN as a dash."""
    text = frame.to_html(
        index=False, border=0, na_rep="–", float_format=lambda v: f"{v:.4g}", justify="left"
    )
    words = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    body = text.replace("<thead>", f"{words}<thead>", 1)
    wraps = any(len(str(cell)) > LONG for cell in frame.to_numpy().flatten())
    kind = "table words" if wraps else "table"
    return f'<div class="{kind}" tabindex="0" role="region" aria-label="table">{body}</div>'


def _section(section: Section, index: int, specs: list[str]) -> str:
    parts = [f'<section id="part-{index}">', f"<h2>{html.escape(section.heading)}</h2>"]
    parts.append(paragraphs(section.prose))
    parts += [_figure(fig, specs) for fig in section.figures]
    parts += [table(frame, caption) for caption, frame in section.tables.items()]
    return "\n".join([*parts, "</section>"])


def _figure(fig: go.Figure, specs: list[str]) -> str:
    words = about(fig)
    if words.theme != "light":
        raise ValueError("a page takes light figures and darkens them itself; got a dark one")
    name = f"figure-{len(specs)}"
    bare = without_title(fig)
    specs.append(f'<script type="application/json" id="{name}-spec">{offline.spec(bare)}</script>')
    notes = f'<p class="note">{html.escape(" · ".join(words.notes))}</p>' if words.notes else ""
    how = "".join(f"<p>{html.escape(line)}</p>" for line in (words.formula, words.sign) if line)
    alt = html.escape(words.alt)
    return f"""<figure>
<h3>{html.escape(words.question)}</h3>
{notes}
<div class="scroll" tabindex="0"><div class="plot" id="{name}" role="img" aria-label="{alt}"
style="height:{bare.layout.height}px;min-width:{words.least_width}px"></div></div>
<figcaption>{alt}</figcaption>
<details><summary>Numbers, and how they are made</summary>{how}{_numbers(fig)}</details>
</figure>"""


def _numbers(fig: go.Figure) -> str:
    frame = numbers(fig)
    if frame.empty:
        return ""
    left = f"the first {MOST_ROWS} of {len(frame):,} rows" if len(frame) > MOST_ROWS else ""
    return table(frame.head(MOST_ROWS), left)


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 3:
        return ""
    links = [
        f'<li><a href="#part-{i}">{html.escape(section.heading)}</a></li>'
        for i, section in enumerate(sections)
    ]
    return f'<nav aria-label="Contents"><ol>{"".join(links)}</ol></nav>'


STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #dde2e7;
  --page: #ffffff; --panel: #f6f8fa; --link: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa3ad; --line: #2c333b;
  --page: #0e1117; --panel: #171c23; --link: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif; }
main { max-width: 58rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .15rem; }
p { max-width: 44rem; margin: .6rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
.verdict { background: var(--panel); border-left: 4px solid var(--link); border-radius: 0 6px 6px 0;
  padding: .6rem 1.2rem; font-size: 1.1rem; }
.note, figcaption, footer, summary, caption { color: var(--soft); font-size: .9rem; }
nav ol { padding-left: 1.2rem; columns: 16rem; }
figure { margin: 1.8rem 0; min-width: 0; }
.plot { width: 100%; }
.scroll { overflow-x: auto; }
figcaption { max-width: 44rem; }
details { margin-top: .4rem; }
summary { cursor: pointer; }
.table { overflow: auto; max-height: 28rem; margin: 1rem 0; border: 1px solid var(--line);
  border-radius: 6px; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  width: 100%; }
caption { text-align: left; padding: .5rem .75rem; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; unicode-bidi: isolate; }
.words { max-height: none; }
.words td { white-space: normal; vertical-align: top; }
.words:has(th:nth-child(3)) table { min-width: 44rem; }
thead th { position: sticky; top: 0; background: var(--panel); }
footer { margin-top: 4rem; border-top: 1px solid var(--line); padding-top: 1rem; }
@media print { details { display: none; } figure { break-inside: avoid; } }
"""

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<div class="verdict" role="note">
{verdict}
</div>
{contents}
{sections}
<footer>{footer}</footer>
</main>
<script>{library}</script>
{specs}
<script>
const swaps = {swaps}, words = new Set({words}), config = {config};
const repaint = (part) => {{
  if (typeof part === "string") return swaps[part] ?? part;
  if (Array.isArray(part)) return part.map(repaint);
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(
    Object.entries(part).map(([k, v]) => [k, words.has(k) ? v : repaint(v)]));
}};
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const draw = () => document.querySelectorAll(".plot").forEach((place) => {{
  let spec = JSON.parse(document.getElementById(place.id + "-spec").textContent);
  if (scheme.matches) spec = repaint(spec);
  Plotly.react(place, spec.data, spec.layout, config);
}});
scheme.addEventListener("change", draw);
draw();
</script>
</body>
</html>
"""
