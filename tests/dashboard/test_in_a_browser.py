"""The first minute in a real browser: no request leaves the machine, nothing is logged."""

import json
import re
from urllib.parse import urlparse

import pytest

from tests.dashboard.browser import browsing, chromium, serving, settled

pytestmark = pytest.mark.skipif(chromium() is None, reason="there is no chromium")


TABLES_LOADED = """() => performance.getEntriesByType('resource')
  .some(({ name }) => name.includes('/DataFrame.'))"""


class Watched:
    """A page, and what it asked for and said."""

    def __init__(self, page):
        self.page, self.outside, self.errors, self.received = page, [], [], 0
        page.on("request", self._request)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _said(self, message):
        probing = "/_stcore/" in message.location.get("url", "")  # Streamlit, on a deep link
        if message.type == "error" and not probing:
            self.errors.append(f"{message.text} {message.location}")

    def _request(self, request):
        host = urlparse(request.url).hostname
        if host not in ("127.0.0.1", None):
            self.outside.append(request.url)

    def chart(self, key):
        return self.page.locator(f".st-key-chart-{key} .main-svg").first

    def click_cell(self, key, layer, head, layers=2, heads=4):
        """Click the middle of a mosaic's cell."""
        plot = self.page.locator(f".st-key-chart-{key} .nsewdrag").first
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        x = box["x"] + box["width"] * (head + 0.5) / heads
        y = box["y"] + box["height"] * (layer + 0.5) / layers
        self.page.mouse.move(x, y)
        self.page.wait_for_timeout(150)
        self.page.mouse.click(x, y)


def text_of(page):
    return page.locator('[data-testid="stMain"]').inner_text()


def test_the_first_minute():
    with serving() as address, browsing(viewport={"width": 1440, "height": 900}) as page:
        seen = Watched(page)
        page.goto(address)
        settled(page)
        assert "are induction heads" in text_of(page)
        page.wait_for_function(TABLES_LOADED)  # while the reader reads

        seen.click_cell("start-mosaic", 1, 3)  # the mosaic leads to the head's attention
        page.wait_for_url("**/attention**")
        settled(page)
        assert "layer=1" in page.url or "head=3" in page.url
        assert page.locator("h1").inner_text() == "Attention of L1H3"
        alt = page.locator(".st-key-chart-attention-pattern").inner_html()
        share = float(re.search(r"where an induction head should look\): (0\.\d+)", alt)[1])
        assert share > 0.7  # the stripe lies in the outlined cells

        strip = page.locator(".token")  # pierces the component's shadow root
        strip.nth(20).hover()
        assert page.locator(".hint").inner_text().startswith("20 ")
        strip.nth(20).click()
        settled(page)
        assert "pin=20" in page.url

        page.get_by_role("link", name="Start").click()
        settled(page)
        page.get_by_role("button", name="Ablate the induction heads").click()
        page.wait_for_url("**/interventions**")
        settled(page)
        words = text_of(page)
        assert "Without L1H0" in words
        together = float(re.search(r"([+-]\d+\.\d+) nats together", words)[1])
        assert together > 1, words

        page.goto(page.url.replace("/interventions", "/training"))
        settled(page)
        slider = page.get_by_role("slider").first
        slider.focus()
        for _ in range(13):
            page.keyboard.press("ArrowLeft")
        settled(page)
        page.get_by_role("link", name="Start").click()
        settled(page)
        assert "No head passes as an induction head here" in text_of(page)

        link = page.url  # a copied link opens the same view in a fresh session
        assert "step=0" in link
        page.goto("about:blank")
        page.goto(link)
        settled(page)
        assert "No head passes as an induction head here" in text_of(page)
        assert seen.outside == []
        assert seen.errors == []


def test_an_export_is_what_the_screen_says():
    with serving() as address, browsing(accept_downloads=True) as page:
        page.goto(f"{address}/heads?run=majority&metric=uniformity")
        settled(page)
        page.get_by_role("button", name="Export").first.click()
        with page.expect_download() as download:
            page.get_by_role("button", name="JSON").click()
        written = json.loads(download.value.path().read_text())
        assert written["rows"][0]["normalised entropy (1 = uniform)"] > 0.99
        assert "ringed" in " ".join(written["notes"])
