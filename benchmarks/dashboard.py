"""What a reader of the dashboard waits for, and what a page sends, in headless Chromium.

Each round starts a server and a browser anew, so that every answer is worked out, none
remembered. A click counts from the press until the page shows something else, at rest, all
charts drawn; a long work that was asked for counts until its progress shows.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlparse

import interp
from benchmarks.load import Meter
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import Clock, Round, Timing, collect
from tests.dashboard.browser import DRAWN, QUIET, browsing, serving

WINDOW = {"width": 1440, "height": 900}
PAGES = ("start", "heads", "attention", "predictions", "interventions", "circuit", "training")
PAINT, ANSWER, PAYLOAD = 3.0, 1.0, 2e6  # seconds, seconds, bytes
TOKENS, LAYERS, HEADS, VOCABULARY = 1024, 12, 12, 64

SAID = """(wanted) => {
  const main = document.querySelector('[data-testid=stMain]'), parts = [location.pathname];
  const read = (node) => {
    if (node.nodeType === Node.TEXT_NODE) parts.push(node.data);
    if (node.ariaLabel) parts.push(node.ariaLabel);
    if (node.classList?.contains('pinned')) parts.push('pinned');
    for (const child of node.shadowRoot?.childNodes ?? []) read(child);
    for (const child of node.childNodes) read(child);
  };
  if (main) read(main);
  return parts.join('|');
}"""
ANSWERED = f"""(before) => document.querySelector('{QUIET}') && ({DRAWN})()
  && !document.querySelector('[data-testid=stMain] [data-stale=true]')
  && ({SAID})() !== before"""
WATCH = f"""() => {{
  window.interpRan = false;
  new MutationObserver((_, watcher) => {{
    if (!document.querySelector('{QUIET}')) {{ window.interpRan = true; watcher.disconnect(); }}
  }}).observe(document.body, {{ subtree: true, attributes: true,
                               attributeFilter: ['data-test-script-state'] }});
}}"""
VERDICT = "() => document.querySelector('[data-testid=stMain] strong')"
PROGRESS = "() => document.querySelector('[data-testid=stProgress]')"


def measure(
    *, quick: bool = False, rounds: int = 3, patience: float = 300.0, clock: Clock = "wall"
) -> Iterator[Measurement]:
    """Seconds to the first page and to each click on the shipped model; bytes of each large page.

    Raises:
        ValueError: Processor time is asked for, which is not what a reader waits.
    """
    if clock != "wall":
        raise ValueError("a reader waits by the clock on the wall: run this without --busy")
    rounds = 1 if quick else rounds
    pages = PAGES[:1] if quick else PAGES
    done = collect(lambda number: _visit(pages), rounds=rounds, patience=patience)
    yield _waits("first page", "first", PAINT, done, rounds)
    yield _waits("clicks", "click", ANSWER, done, rounds)
    yield _payload(pages, quick)


def _waits(name: str, kind: str, limit: float, done: list[Round], rounds: int) -> Measurement:
    """The seconds of one kind, each held to the limit by its median."""
    chosen = [
        Round(
            {n.split(": ", 1)[1]: s for n, s in each.seconds.items() if n.startswith(kind)},
            each.foreign,
            each.disturbed,
        )
        for each in done
    ]
    names = list(chosen[0].seconds)
    timing = Timing(chosen, rounds, dict.fromkeys(names, 1))
    checks = [
        Check(f"{n}, seconds", timing.median(n), at_most=limit)
        for n in names
        if not n.endswith("(no limit)")
    ]
    return timed(name, timing, baseline=names[0], settings={"window": WINDOW}, checks=checks)


def _visit(pages: tuple[str, ...]) -> Round:
    """One visit to a fresh server: seconds by what was waited for."""
    meter, seconds = Meter(), {}
    begun = time.perf_counter()
    with serving() as address, browsing(viewport=WINDOW) as page:
        seconds["first: command to verdict, with the browser's start (no limit)"] = 0.0
        opened = time.perf_counter()
        page.goto(address)
        page.wait_for_function(VERDICT)
        seconds["first: address to verdict"] = time.perf_counter() - opened
        seconds["first: command to verdict, with the browser's start (no limit)"] = (
            time.perf_counter() - begun
        )
        page.wait_for_function(ANSWERED, arg="")
        seconds["first: address to all charts (no limit)"] = time.perf_counter() - opened
        opened = time.perf_counter()
        page.goto(address)
        page.wait_for_function(VERDICT)
        seconds["first: address to verdict, again"] = time.perf_counter() - opened
        page.wait_for_function(ANSWERED, arg="")
        for name, click, until in _clicks(pages):
            seconds[f"click: {name}"] = _seconds(page, click, until)
        if "interventions" in pages:
            seconds["click: interventions: a fitted constant, until progress shows"] = _fitted(page)
    foreign, disturbed = meter.read()  # the server and the browser have ended: they are ours
    return Round(seconds, foreign, disturbed)


def _seconds(page: Any, click: Callable[[Any], None], until: str = ANSWERED) -> float:
    page.wait_for_function(ANSWERED, arg="")  # what came before is done
    page.wait_for_timeout(200)
    before = page.evaluate(SAID)
    page.evaluate(WATCH)  # hovering changes the page too: the script has to have run
    start = time.perf_counter()
    click(page)
    page.wait_for_function(f"(before) => window.interpRan && ({until})(before)", arg=before)
    return time.perf_counter() - start


def _clicks(pages: tuple[str, ...]) -> Iterator[tuple[str, Callable[[Any], None], str]]:
    """What a reader does on each page; then each page again, at earlier checkpoints."""
    for name in pages:
        if name != "start":
            yield f"switch to {name}", _switch(name), _at(name)
        for words, click in CLICKS[name].items():
            yield f"{name}: {words}", click, _at("attention") if name == "start" else ANSWERED
    for name in pages:
        yield f"back to {name}", _switch(name), _at(name)
        yield f"{name}: move the checkpoint slider", _slider, ANSWERED


def _at(page: str) -> str:
    """Whether this page is shown, at rest."""
    where = "/" if page == "start" else f"/{page}"
    return f"(before) => location.pathname === '{where}' && ({ANSWERED})(before)"


def _fitted(page: Any) -> float:
    """Seconds until the page says that it works on the kind of ablation that takes longest."""
    page.get_by_role("link", name="Interventions").first.click()
    page.wait_for_url("**/interventions**")
    _seconds(page, _button("more …"))
    page.get_by_role("combobox", name="Which").click()
    found = _seconds(page, lambda p: p.get_by_role("option", name="optimal").click(), PROGRESS)
    page.wait_for_function(ANSWERED, arg="", timeout=120_000)
    return found


def _switch(name: str) -> Callable[[Any], None]:
    return lambda page: page.get_by_role("link", name=name.capitalize()).first.click()


def _slider(page: Any) -> None:
    page.get_by_role("slider").first.press("ArrowLeft")


def _cell(chart: str, layer: int, head: int) -> Callable[[Any], None]:
    def click(page: Any) -> None:
        plot = page.locator(f".st-key-chart-{chart} .nsewdrag").first
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        x = box["x"] + box["width"] * (head + 0.5) / 4
        y = box["y"] + box["height"] * (layer + 0.5) / 2
        page.mouse.move(x, y)
        page.wait_for_timeout(30)  # plotly takes a click where it saw the pointer before
        page.mouse.click(x, y)

    return click


def _main(page: Any) -> Any:
    return page.locator("[data-testid=stMain]")


def _button(name: str) -> Callable[[Any], None]:
    return lambda page: _main(page).get_by_text(name, exact=True).first.click()


def _pin(page: Any) -> None:
    page.get_by_role("spinbutton", name="Pinned token").press("ArrowDown")


CLICKS: dict[str, dict[str, Callable[[Any], None]]] = {
    "start": {"click a head in the mosaic": _cell("start-mosaic", 1, 3)},
    "heads": {
        "click a head in the mosaic": _cell("heads-mosaic", 0, 2),
        "another score, uniformity": _button("uniformity"),
        "another score, Δloss": _button("Δloss"),
        "another score, importance": _button("importance"),
    },
    "attention": {
        "pin a token": lambda page: page.locator(".token").nth(20).click(),
        "arrow key": lambda page: page.locator(".strip").press("ArrowRight"),
        "click a thumbnail": _cell("attention-thumbnails", 1, 1),
        "show scores": _button("score"),
    },
    "predictions": {"pin a token": _pin},
    "interventions": {
        "ablate the induction heads": _button("The induction heads"),
        "means in place of zeros": _button("mean"),
        "pin a token": _pin,
        "sweep all heads": _button("Sweep all heads"),
    },
    "circuit": {
        "composition through Q": _button("Q"),
        "move the threshold": lambda page: page.get_by_role("slider").last.press("ArrowRight"),
    },
    "training": {"another score": _button("previous token")},
}


def _payload(pages: tuple[str, ...], quick: bool) -> Measurement:
    """Bytes that each page of a large model and a long prompt sends, without streamlit's own."""
    count, layers, heads = (64, 2, 2) if quick else (TOKENS, LAYERS, HEADS)
    config = interp.TransformerConfig(
        n_layers=layers, n_heads=heads, d_model=8 * heads, d_vocab=VOCABULARY, n_ctx=count
    )
    url = urlencode({
        "prompt": "typed", "typed": " ".join(str(i * i % 61) for i in range(count)),
        "cut": "L0H0", "layer": 1, "head": 1,
    })  # fmt: skip
    sent, waited, static = {}, {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = interp.save(interp.Transformer(config), Path(scratch, "large"))
        with serving([folder]) as address:
            for name in pages:
                where = "" if name == "start" else name
                found = _load(f"{address}/{where}?{url}")
                sent[name], static[name], waited[name] = found
    return Measurement(
        name="payload",
        settings={"tokens": count, "layers": layers, "heads": heads, "vocabulary": VOCABULARY},
        unit="bytes",
        baseline=pages[0],
        medians=sent,
        ratios={name: sent[name] / sent[pages[0]] for name in pages},
        samples={name: [sent[name]] for name in pages},
        checks=[Check(f"{n}, bytes", sent[n], at_most=PAYLOAD) for n in pages],
        notes={
            "streamlit's own files, once": round(statistics.median(static.values())),
            "seconds until drawn": {n: round(s, 2) for n, s in waited.items()},
        },
    )


def _load(url: str) -> tuple[float, float, float]:
    """Bytes of a page, of streamlit's own files, and seconds until all is drawn."""
    frames, files = [0], {"own": 0, "static": 0}

    def took(request: Any) -> None:
        kind = "static" if urlparse(request.url).path.startswith("/static/") else "own"
        files[kind] += request.sizes()["responseBodySize"]

    with browsing(viewport=WINDOW) as page:
        page.on("requestfinished", took)
        page.on(
            "websocket", lambda socket: socket.on("framereceived", lambda f: frames.append(len(f)))
        )
        start = time.perf_counter()
        page.goto(url)
        page.wait_for_function(ANSWERED, arg="", timeout=180_000)
        seconds = time.perf_counter() - start
        page.wait_for_timeout(300)
    return float(sum(frames) + files["own"]), float(files["static"]), seconds
