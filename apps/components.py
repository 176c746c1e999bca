"""Small components of our own: the strip of tokens, a button for the link, a way to a page.

Tokens reach the page as `textContent`, so no token is markup. Nothing is loaded from elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from streamlit.components.v2 import component

from apps.sources import UnreadableError
from interp.plots import visible

LONGEST_HOVER = 256  # tokens; beyond, only the pinned row's weights are sent

STRIP_CSS = """
.strip { font-family: var(--st-code-font), ui-monospace, monospace; font-size: 0.84rem;
  line-height: 2.1; outline: none; border-radius: 6px; max-height: 15rem; overflow-y: auto; }
.strip:focus-visible { box-shadow: 0 0 0 2px var(--st-primary-color); }
.token { display: inline-block; padding: 0 0.34em; margin: 1px; border: 1.5px solid transparent;
  border-radius: 4px; cursor: pointer; unicode-bidi: isolate; white-space: pre;
  line-height: 1.65; background: none; color: inherit; font: inherit; }
.token small { opacity: 0.55; font-size: 0.68em; margin-right: 0.35em; }
.token.pinned { border-color: #d35400; font-weight: 600; }
.token.future { opacity: 0.38; }
.hint { font-family: var(--st-font), sans-serif; font-size: 0.8rem; opacity: 0.72;
  min-height: 1.5em; line-height: 1.5; margin-top: 2px; }
"""

STRIP_JS = """
export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".strip");
  const hint = parentElement.querySelector(".hint");
  root.replaceChildren();
  const spans = data.tokens.map((token, i) => {
    const span = document.createElement("span");
    const index = document.createElement("small");
    index.textContent = String(i);
    span.className = "token" + (i === data.pinned ? " pinned" : "");
    span.append(index, document.createTextNode(token));
    span.title = data.titles[i];
    span.addEventListener("mouseenter", () => paint(i));
    span.addEventListener("click", () => setTriggerValue("pin", i));
    root.append(span);
    return span;
  });
  const rowOf = (i) => data.weights ? data.weights[i] : i === data.pinned ? data.row : null;
  const paint = (i) => {
    const row = rowOf(i);
    spans.forEach((span, j) => {
      const weight = row ? row[j] / 255 : 0;
      span.style.background = weight > 0 ? `rgba(${data.ink}, ${weight})` : "none";
      span.style.color = weight > 0.55 ? data.strong : "inherit";
      span.classList.toggle("future", j > i);
    });
    if (!row) { hint.textContent = "Long prompt: click a token to see where it looks."; return; }
    const best = row.map((w, j) => [w, j]).sort((a, b) => b[0] - a[0]).slice(0, 3)
      .filter(([w]) => w > 12).map(([w, j]) => `${j} ${data.tokens[j]} (${(w / 255).toFixed(2)})`);
    hint.textContent = `${i} ${data.tokens[i]} looks at ` +
      (best.length ? best.join(", ") : "many tokens, none over 0.05");
  };
  root.onmouseleave = () => paint(data.pinned);
  root.onkeydown = (event) => {
    const moves = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" };
    if (event.key in moves) { event.preventDefault(); setTriggerValue("move", moves[event.key]); }
  };
  paint(data.pinned);
  const pinned = spans[data.pinned];
  if (pinned) root.scrollTop = pinned.offsetTop - root.offsetTop - root.clientHeight / 2;
}
"""

COPY_CSS = """
button { font: inherit; font-size: 0.85rem; color: inherit; background: none; cursor: pointer;
  border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius, 8px);
  padding: 0.3rem 0.75rem; width: 100%; min-height: 2.2rem; }
button:hover, button:focus-visible { border-color: var(--st-primary-color);
  color: var(--st-primary-color); outline: none; }
"""

COPY_JS = """
export default function ({ parentElement }) {
  const button = parentElement.querySelector("button");
  button.onclick = async () => {
    await navigator.clipboard.writeText(window.location.href);
    button.textContent = "Link copied";
    setTimeout(() => { button.textContent = "Copy link to this view"; }, 1500);
  };
}
"""

GO_CSS = """
:host { display: none; }
"""

GO_JS = """
export default function ({ data }) {
  const folder = window.location.pathname.replace(/[^/]*$/, "");
  const said = new URLSearchParams(window.location.search);
  for (const [name, values] of Object.entries(data.says)) {
    said.delete(name);
    values.forEach((value) => said.append(name, value));
  }
  const search = said.size ? "?" + said : "";
  window.history.pushState({}, "", folder + data.page + search);
  window.dispatchEvent(new PopStateEvent("popstate"));
}
"""

AHEAD_JS = """
export default function ({ data }) {
  const own = document.querySelector("script[type=module][src*='/static/js/']");
  if (!own || window.interpLoadsAhead) return;
  window.interpLoadsAhead = true;
  const load = () => data.files.forEach((file) => {
    const link = document.createElement("link");  // read and compiled, not yet run
    link.rel = "modulepreload";
    link.href = new URL(file, own.src).href;
    document.head.append(link);
  });
  setTimeout(() => (window.requestIdleCallback ?? setTimeout)(load), data.wait);
}
"""
AHEAD = ("DataFrame.*.js", "arrowFormatUtils.*.js")  # a megabyte, for the first table
WAIT = 1500  # milliseconds: the first page has its charts by then


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """A part of a page that may be impossible: it says why, and what follows is drawn."""
    try:
        yield
    except UnreadableError as error:
        st.text(str(error))


@st.cache_resource(show_spinner=False)
def _renderer(name: str, html: str, css: str, js: str) -> Callable[..., Any]:
    return component(name, html=html, css=css, js=js)


def token_strip(
    labels: Sequence[str],
    weights: np.ndarray,
    pinned: int,
    *,
    theme: str,
    key: str,
    on_pin: Callable[[int], None],
    on_move: Callable[[str], None],
) -> None:
    """The prompt's tokens: hovering one shows where it looks, clicking pins it.

    Args:
        labels: The tokens.
        weights: [T T] attention probabilities of one head, query × key.
        pinned: Whose row is shown while nothing is hovered.
        theme: "light" or "dark".
        key: The component's key.
        on_pin: Called with the position of a token that was clicked.
        on_move: Called with "left", "right", "up" or "down" when an arrow key was pressed.
    """
    codes = np.nan_to_num(weights * 255).round().clip(0, 255).astype(int)
    short = len(labels) <= LONGEST_HOVER
    data = {
        "tokens": [visible(label) for label in labels],
        "titles": [f"{i}: {label!r}" for i, label in enumerate(labels)],
        "weights": codes.tolist() if short else None,
        "row": codes[pinned].tolist(),
        "pinned": pinned,
        "ink": "122, 188, 255" if theme == "dark" else "16, 92, 178",
        "strong": "#0a0a0a" if theme == "dark" else "#fafafa",
    }
    html = '<div class="strip" tabindex="0" role="group" aria-label="tokens"></div>'
    strip = _renderer("token_strip", html + '<div class="hint"></div>', STRIP_CSS, STRIP_JS)
    strip(
        key=key,
        data=data,
        on_pin_change=lambda: on_pin(int(st.session_state[key]["pin"])),
        on_move_change=lambda: on_move(str(st.session_state[key]["move"])),
    )


def copy_link() -> None:
    """A button that copies the address of the page, with all that was chosen."""
    html = "<button type='button'>Copy link to this view</button>"
    _renderer("copy_link", html, COPY_CSS, COPY_JS)(key="copy_link")


@cache
def _ahead() -> list[str]:
    """What streamlit's own page will load for a table; nothing where it is called otherwise."""
    folder = Path(st.__file__).parent / "static" / "static" / "js"
    return [path.name for pattern in AHEAD for path in sorted(folder.glob(pattern))]


def load_ahead() -> None:
    """Have the browser load what tables need while the first page is read."""
    data = {"files": _ahead(), "wait": WAIT}
    _renderer("load_ahead", "<span></span>", GO_CSS, AHEAD_JS)(key="load_ahead", data=data)


def go_to(page: str, says: dict[str, list[str]]) -> None:
    """Open another page; the address keeps what it says, and `says` that too.

    `st.switch_page` empties the address first, and refuses where widgets are bound to it. What a
    script sets in the session for a bound widget of another page is lost on the way: the address
    has to say it.
    """
    data = {"page": page, "says": says}
    _renderer("go_to", "<span></span>", GO_CSS, GO_JS)(key=f"go-to-{page}", data=data)
