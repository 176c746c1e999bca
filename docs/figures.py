"""The figure of an analysis as a small picture: `python -m docs.figures PAGE.html ... OUT`.

Takes the first figure of each page that an analysis wrote, and copies the JSON beside it.
"""

import shutil
import sys
from pathlib import Path

from tests.dashboard.browser import browsing

SIZE = {"width": 1000, "height": 700}


def main(pages: list[Path], out: Path) -> None:
    """Write NAME.png and NAME.json for each page."""
    out.mkdir(parents=True, exist_ok=True)
    with browsing(viewport=SIZE) as browser:
        for path in pages:
            browser.goto(path.resolve().as_uri())
            figure = browser.locator(".js-plotly-plot").first
            figure.wait_for()
            browser.wait_for_timeout(500)
            figure.screenshot(path=out / f"{path.stem}.png")
            if (numbers := path.with_suffix(".json")).exists():
                shutil.copy(numbers, out / numbers.name)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:-1]], Path(sys.argv[-1]))
