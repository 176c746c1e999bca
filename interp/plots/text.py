"""Words that are safe to show: token text made visible, and plotly's markup made harmless."""

import html
import unicodedata
from collections.abc import Sequence

GLYPHS = {"\n": "↵", "\t": "⇥", " ": "·", "\r": "␍"}
EMPTY = "∅"
JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}  # inside an emoji they are glue, alone they are nothing
RIGHT_TO_LEFT = {"R", "AL", "AN"}


def visible(token: str) -> str:
    """The token with everything invisible in it made visible; plain text, not markup.

    Newline ↵, tab ⇥, space ·, empty ∅; other controls, zero-width and directional characters as
    `U+200B`. A token that holds one of these signs itself shows it as `U+00B7`, so two tokens
    that differ look different. Right-to-left text is isolated: it can't turn its neighbours.
    """
    if not token:
        return EMPTY
    shown = "".join(_visible_character(c, token) for c in token)
    if unicodedata.category(shown[0]).startswith("M"):
        shown = "◌" + shown  # a combining mark alone needs something to sit on
    if any(unicodedata.bidirectional(c) in RIGHT_TO_LEFT for c in shown):
        shown = f"\u2068{shown}\u2069"
    return shown


def _visible_character(c: str, token: str) -> str:
    if c in GLYPHS:
        return GLYPHS[c]
    if c in GLYPHS.values() or c in EMPTY + "⏎":
        return f"U+{ord(c):04X}"
    if c in JOINERS and len(token) > 1:
        return c
    if ord(c) < 32:
        return chr(0x2400 + ord(c))
    if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"} | (
        {"Mn"} if c in JOINERS else set()
    ):
        return f"U+{ord(c):04X}"
    return c


def escape(text: str) -> str:
    """Plain text as plotly shows it literally: no tags, no entities, no LaTeX."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def unescape(markup: str) -> str:
    """What `escape` was given."""
    return html.unescape(markup)


def shorten(text: str, width: int) -> str:
    """The text, with its middle cut out where it is longer than `width` characters."""
    if len(text) <= width:
        return text
    left = (width - 1) // 2
    return text[:left] + "…" + text[len(text) - (width - 1 - left) :]


def wrap(text: str, width: int = 88) -> list[str]:
    """Lines of at most about `width` characters, broken between words."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def listing(items: Sequence[str], most: int = 4) -> str:
    """A list in words: `a, b and c`, or `a, b, c, d and 3 more`."""
    shown = list(items[:most])
    if len(items) > most:
        return f"{', '.join(shown)} and {len(items) - most} more"
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def rounded(value: float, *, plus: bool = False) -> str:
    """Two decimals, with a true minus sign and no negative zero: `+0.31`, `−1.20`, `0.00`."""
    text = f"{value:+.2f}" if plus else f"{value:.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


def sentence(text: str) -> str:
    """The text with a capital first letter; the rest is left alone."""
    return text[:1].upper() + text[1:]
