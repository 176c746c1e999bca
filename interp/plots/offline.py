"""Figures where there is no network: in notebooks, and in one HTML file."""

import base64
import gzip
import html
import json
import uuid
from functools import cache
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

BACKGROUND = {"light": "#ffffff", "dark": "#0e1117"}
CONFIG = {"responsive": True, "displaylogo": False, "showTips": False}

# The library is unpacked once a page, whichever figure comes first, and shared by all. Pages of
# nbconvert bring require.js, which must not catch it, and MathJax, which must not read our labels.
# Where scripts may not run, as in a notebook that is not trusted, the words stand.
FRAGMENT = """\
<div id="{id}" class="tex2jax_ignore mathjax_ignore" role="img" aria-label="{alt}"
  style="min-height:{height}px">{alt}</div>
<script type="text/javascript">(async () => {{
  const unpack = async (text) => {{
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    new Function("define", "module", "exports", await new Response(stream).text())();
  }};
  window.interpPlotly ??= window.Plotly ? Promise.resolve() : unpack("{library}");
  await window.interpPlotly;
  const spec = {spec};
  document.getElementById("{id}").textContent = "";
  window.Plotly.newPlot("{id}", spec.data, spec.layout, {config});
}})();</script>"""

DOCUMENT = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ margin: 1rem; background: {background}; }}</style>
<script>{library}</script>
</head>
<body>
<div id="figure" role="img" aria-label="{alt}"></div>
<script>
const spec = {spec};
Plotly.newPlot("figure", spec.data, spec.layout, {config});
</script>
</body>
</html>
"""


@cache
def packed_library() -> str:
    """plotly.js, gzipped, in base64: 1.9 MB instead of 4.8."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def spec(fig: go.Figure) -> str:
    """The figure as JSON that may stand inside a script element."""
    return script_safe(str(fig.to_json()))


def script_safe(text: str) -> str:
    """JSON in which no token can close the script element around it."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def opaque(fig: go.Figure) -> go.Figure:
    """A copy on the background of its theme, for pages whose own colour we don't know."""
    copy = go.Figure(fig)
    theme = (fig.layout.meta or {}).get("theme", "light")
    return copy.update_layout(paper_bgcolor=BACKGROUND[theme])


def mimebundle(fig: go.Figure, alt: str) -> dict[str, Any]:
    """The figure in every form that a notebook may want: plotly's own, HTML, and words."""
    own = {**json.loads(str(opaque(fig).to_json())), "config": CONFIG}
    return {
        "application/vnd.plotly.v1+json": own,
        "text/html": fragment(fig, alt),
        "text/plain": alt,
    }


def fragment(fig: go.Figure, alt: str) -> str:
    """HTML for one output cell; it needs nothing that is not in it."""
    return FRAGMENT.format(
        id=f"interp-{uuid.uuid4().hex}",
        alt=html.escape(alt),
        height=fig.layout.height or 450,
        library=packed_library(),
        spec=spec(opaque(fig)),
        config=json.dumps(CONFIG),
    )


def document(fig: go.Figure, title: str, alt: str) -> str:
    """One HTML page with plotly.js in it."""
    theme = (fig.layout.meta or {}).get("theme", "light")
    return DOCUMENT.format(
        title=html.escape(title),
        background=BACKGROUND[theme],
        library=get_plotlyjs(),
        alt=html.escape(alt),
        spec=spec(fig),
        config=json.dumps(CONFIG),
    )
