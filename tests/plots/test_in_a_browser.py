"""The exported page, the report and the notebook fragment, in a real browser with no network."""

import shutil

import numpy as np
import pytest

from interp import plots

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")

TOKENS = ["<b>x</b>", "$x$", "\n", "the", "the", "<script>window.ran = 1</script>"]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open HTML; gives the page, and what it asked for and complained of."""
    pages = []

    def opened(text, scheme="light"):
        file = tmp_path / "page.html"
        file.write_text(text)
        page = browser.new_page(color_scheme=scheme, viewport={"width": 800, "height": 700})
        pages.append(page)
        trouble = []
        page.on("request", lambda r: r.url.startswith("http") and trouble.append(r.url))
        page.on("console", lambda m: m.type in ("error", "warning") and trouble.append(m.text))
        page.on("pageerror", lambda e: trouble.append(str(e)))
        page.goto(file.as_uri())
        page.wait_for_selector(".main-svg", timeout=20_000)
        return page, trouble

    yield opened
    for page in pages:
        page.close()


def attention():
    return plots.attention(np.eye(6, k=-1) + np.diag([1.0] + [0] * 5), TOKENS)


def ticks(page, axis):
    return page.locator(f".{axis}tick text").all_text_contents()


def test_exported_file_shows_literal_labels_and_a_planted_weight_and_asks_nobody(opened):
    page, trouble = opened(plots.to_html(attention()))
    assert ticks(page, "x")[:5] == ["0 <b>x</b>", "1 $x$", "2 ↵", "3 the", "4 the"]
    box = page.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 3.5 / 6, box["y"] + box["height"] * 4.5 / 6
    page.mouse.move(x - 1, y)
    page.mouse.move(x, y)  # column 3, row 4
    page.wait_for_selector(".hoverlayer text")
    assert "query 4 the→ key 3 the1.000" in page.locator(".hoverlayer").text_content()
    assert page.evaluate("window.ran") is None
    assert trouble == []


def test_two_notebook_outputs_share_one_library_and_no_network(opened):
    heads = plots.head_heatmap([[0.5, 0.1]])
    page, trouble = opened(f"<body>{heads._repr_html_()}{attention()._repr_html_()}</body>")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot').length === 2")
    assert trouble == []


@pytest.mark.parametrize(("scheme", "ink"), [("light", "rgb(31, 35, 40)"), ("dark", "#e6edf3")])
def test_report_follows_the_system(opened, scheme, ink):
    section = plots.Section("Heads", "Words.", [plots.head_heatmap([[0.5, 0.1]]), attention()])
    page, trouble = opened(plots.report_page("Run", "Fine.", sections=[section]), scheme)
    fill = page.locator(".xtick text").first.evaluate("e => getComputedStyle(e).fill")
    assert fill == {"#e6edf3": "rgb(230, 237, 243)"}.get(ink, ink)
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert trouble == []


def test_click_on_a_head_names_its_layer_and_column(opened):
    page, trouble = opened(plots.to_html(plots.head_heatmap(np.zeros((2, 4)))))
    page.evaluate(
        "document.getElementById('figure').on('plotly_click', e => {"
        " window.clicked = e.points.map(p => [p.x, p.y]) })"
    )
    box = page.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 0.52, box["y"] + box["height"] * 0.9  # a corner of L1H2
    page.mouse.move(x - 1, y)
    page.mouse.click(x, y)
    page.wait_for_function("window.clicked")
    assert page.evaluate("window.clicked") == [[2, 1]]
    assert trouble == []


TEXT = [str(i) for i in range(30)]
GUESSED = {
    "mosaic": lambda: plots.head_heatmap(np.full((2, 12), 0.5)),
    "graph": lambda: plots.composition_graph(np.ones((2, 4, 2, 4))),
    "composition": lambda: plots.composition_heatmap(np.ones((2, 4, 2, 4))),
    "bars": lambda: plots.effect_bars(["token embedding", "L0H0"], [-0.5, 2.0]),
    "losses": lambda: plots.loss_curve({"step": [0, 9, 400], "loss": [4.5, 4.0, 0.01]}),
    "scores": lambda: plots.scores_by_step([0, 9, 400], {"best of L0": [0.01, 0.05, 0.04]}),
    "steps": lambda: plots.heads_by_step(np.full((3, 2, 4), 0.5), [0, 9, 400]),
    "tokens": lambda: plots.token_loss(TEXT, np.linspace(0, 12, 30)),
    "lens": lambda: plots.logit_lens(
        np.full((2, 30), 0.5), [TEXT] * 2, labels=TEXT, layers=["before L0", "output"]
    ),
}


@pytest.mark.parametrize("name", GUESSED)
def test_margins_are_guessed_so_that_nothing_is_drawn_twice(opened, name: str):
    fig = GUESSED[name]()
    page, _ = opened(plots.to_html(fig))
    taken = page.evaluate("(({l, b}) => [l, b])(document.querySelector('.js-plotly-plot')"
                          "._fullLayout._size)")  # fmt: skip
    guessed = [fig.layout.margin.l, fig.layout.margin.b]
    assert max(np.subtract(taken, guessed)) <= 2  # plotly lets as much be
    assert max(guessed) < 180
