"""What the dashboard's tests share: the page in memory, and models with hostile tokens."""

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import interp
from apps import state

SCRIPT = Path(__file__).parents[2] / "apps" / "dashboard.py"
SECONDS = 120  # before a page counts as hung; machines that run tests are busy

HOSTILE = (
    "\n", "\t", " ", "​", "👩‍👩‍👧‍👦", "שלום", "á", "<b>x</b>", "**x**", "$x$",
    "<script>document.title='owned'</script>", ":smile:", "[l](http://x.test)", "`c`", "a", "b",
)  # fmt: skip


def app(page: str = "start", *, runs: Sequence[Path] = (), theme: str = "light", **url: Any) -> Any:
    """The dashboard in memory, after its first run on a page with what its address says."""
    sys.argv = ["dashboard.py", *map(str, runs)]
    found = AppTest.from_file(str(SCRIPT), default_timeout=SECONDS)
    found.context = {"theme": theme}
    for name, value in url.items():
        found.query_params[name] = value if isinstance(value, list) else str(value)
    if page == "start":
        return found.run()
    return found.switch_page(f"views/{page}.py").run()


def words(at: Any) -> str:
    """All that is written on the page."""
    kinds = ("title", "markdown", "caption", "text", "error", "info")
    return "\n".join(str(part.value) for kind in kinds for part in at.get(kind))


def charts(at: Any) -> list[Any]:
    """The charts on the page."""
    return [part.proto for part in at.get("plotly_chart")]


def healthy(at: Any) -> Any:
    """The page, which raised nothing."""
    assert not at.exception, at.exception[0].message
    return at


@pytest.fixture(autouse=True)
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A command line of its own, a folder in which there are no ./runs, and no job left behind."""
    monkeypatch.setattr(sys, "argv", ["dashboard.py"])
    monkeypatch.setenv("PYTHONPATH", str(SCRIPT.parents[1]))  # for the processes it starts
    monkeypatch.chdir(tmp_path)
    yield
    state.jobs.clear()  # the page shows the last run that was started in this process


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    """Saves a small random model and gives its folder."""

    def make(name: str = "tiny", dtype: Any = None, **config: Any) -> Path:
        sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_vocab": 20, "n_ctx": 24}
        model = interp.Transformer(interp.TransformerConfig(**sizes | config))
        return interp.save(model if dtype is None else model.to(dtype), tmp_path / name)

    return make


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A llama2.c model whose tokens are invisible, markup, or both."""
    width, hidden, layers, heads, context = 8, 16, 1, 2, 32
    count = 3 + 256 + len(HOSTILE)
    shapes = [count * width, layers * width, *[layers * width * width] * 4, layers * width,
              *[layers * width * hidden] * 3, width, context * width // heads]  # fmt: skip
    weights = np.random.default_rng(0).normal(0, 0.3, sum(shapes)).astype("<f4")
    header = struct.pack("<7i", width, hidden, layers, heads, heads, count, context)
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "hostile.bin").write_bytes(header + weights.tobytes())
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *[f"<0x{i:02X}>" for i in range(256)], *HOSTILE]
    stored = [struct.pack("<fi", 0.0, len(p.encode())) + p.encode() for p in pieces]
    longest = struct.pack("<i", max(len(p.encode()) for p in pieces))
    (folder / "tok.bin").write_bytes(longest + b"".join(stored))
    return folder / "hostile.bin"


FIRST_HOSTILE = 3 + 256
FOREIGN = ("stories260K/hf", "stories260K/stories260K.bin", "tracr_reverse", "tl_legacy/standard")
