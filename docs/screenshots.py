"""Pictures of every page: `python -m docs.screenshots OUT [WINDOW|THEME|PAGE ...]`.

`python -m docs.screenshots readme` takes the two that the README shows.
"""

import io
import sys
from pathlib import Path

from PIL import Image

from tests.dashboard.browser import browsing, serving, settled

PAGES = (
    "start", "heads", "attention", "predictions", "interventions", "circuit", "training",
)  # fmt: skip
WINDOWS = {"desktop": (1440, 900), "phone": (390, 844), "wide": (3840, 2160)}


def shoot(address: str, out: Path, window: str, theme: str, pages: list[str]) -> None:
    """Every page in one window and theme."""
    width, height = WINDOWS[window]
    size = {"width": width, "height": height}
    with browsing(viewport=size, color_scheme=theme) as page:
        for name in pages:
            where = "" if name == "start" else name
            page.goto(f"{address}/{where}{QUERY.get(name, '')}")
            settled(page)
            tall = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
            page.set_viewport_size({"width": width, "height": max(height, min(tall, 4000))})
            page.wait_for_timeout(700)
            page.screenshot(path=out / f"{name}-{theme}-{window}.png")
            page.set_viewport_size(size)


def main(out: Path, windows: list[str], themes: list[str], pages: list[str]) -> None:
    """Take them."""
    out.mkdir(parents=True, exist_ok=True)
    with serving() as address:
        for window in windows:
            for theme in themes:
                shoot(address, out, window, theme, pages)


def for_readme(folder: Path) -> None:
    """The two pictures of the README."""
    size = dict(zip(("width", "height"), WINDOWS["desktop"], strict=True))
    with serving() as address, browsing(viewport=size, color_scheme="light") as page:
        for name in ("start", "attention"):
            where = "" if name == "start" else name
            page.goto(f"{address}/{where}{QUERY.get(name, '')}")
            settled(page)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture = picture.quantize(256, dither=Image.Dither.NONE)  # under 200 kB
            picture.save(folder / f"dashboard-{name}.png", optimize=True)


QUERY = {
    "attention": "?layer=1&head=3",
    "interventions": "?cut=L1H0&cut=L1H3",
}

if __name__ == "__main__":
    asked = set(sys.argv[2:])
    if sys.argv[1] == "readme":
        for_readme(Path(__file__).parent)
        sys.exit()
    main(
        Path(sys.argv[1]),
        [w for w in WINDOWS if w in asked] or list(WINDOWS),
        [t for t in ("light", "dark") if t in asked] or ["light", "dark"],
        [p for p in PAGES if p in asked] or list(PAGES),
    )
