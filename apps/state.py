"""The only caching and loading: models by their files, answers by the question and the model.

What is kept is shared by all sessions, and keyed by everything that it depends on: the weights'
file and its date, the prompt, the options. What a reader chose lives in that reader's session.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import streamlit as st

from apps import sources
from apps.jobs import Jobs
from apps.prompts import Prompt
from apps.sources import Opened

T = TypeVar("T")
KEPT_MODELS, KEPT_ANSWERS, KEPT_SWEEPS = 6, 400, 64


@dataclass(frozen=True)
class Chosen:
    """What the sidebar says: all that a page depends on."""

    opened: Opened
    prompt: Prompt
    layer: int
    head: int
    pin: int
    theme: Any
    steps: Sequence[int]

    @property
    def head_name(self) -> str:
        """The head's name: `L1H3`."""
        return f"L{self.layer}H{self.head}"


def kept(key: str, options: list, default: object) -> None:
    """Put a bound choice back to its default where the options no longer hold it."""
    if key in st.session_state and st.session_state[key] not in options:
        st.session_state[key] = default


def choose(chosen: Chosen) -> None:
    """Keep what the sidebar says, for the page that comes next in this run of the script."""
    st.session_state["chosen"] = chosen


def chosen() -> Chosen:
    """What the sidebar says."""
    return st.session_state["chosen"]


def select(layer: int, head: int) -> None:
    """Choose a head, for all pages; to be called before the sidebar is drawn: from a callback."""
    st.session_state["layer"], st.session_state["head"] = layer, head


def pin(position: int) -> None:
    """Pin a token, for all pages; from a callback."""
    st.session_state["pin"] = position


def cut(names: Sequence[str]) -> None:
    """Choose what the page Interventions cuts; from a callback of that page."""
    st.session_state["cut"] = list(names)


def go(page: str, **says: list[str]) -> None:
    """Open a page when this run of the script is done, its choices set; from a callback."""
    st.session_state["go"] = (page, says)


def available() -> dict[str, Path]:
    """Runs and models by name: those named on the command line, those that ship, ./runs."""
    return sources.found_sources(sys.argv[1:])


def opened(name: str, path: Path, step: int | None) -> Opened:
    """A model, read again only when its file changed.

    Raises:
        UnreadableError: It can't be read.
    """
    return _opened(sources.signature(path, step), name, _path=path, _step=step)


@st.cache_resource(max_entries=KEPT_MODELS, show_spinner=False)
def _opened(key: str, name: str, _path: Path, _step: int | None) -> Opened:
    return sources.open_source(name, _path, _step, key)


def whole_run(opened: Opened, steps: Sequence[int]) -> Opened:
    """The run that a checkpoint is of, for questions to these of its checkpoints."""
    return replace(opened, key=sources.signature_of_all(opened.path, steps))


def answer(question: Callable[..., T], opened: Opened, *args: Any) -> T:
    """`question(opened, *args)`, or what it gave before for the same weights and arguments."""
    return _answer(_key(question, opened, args), _question=question, _opened=opened, _args=args)


@st.cache_data(max_entries=KEPT_ANSWERS, show_spinner=False)
def _answer(key: str, _question: Callable[..., Any], _opened: Opened, _args: Any) -> Any:
    return _question(_opened, *_args)


def _key(question: Callable[..., Any], opened: Opened, args: Any) -> str:
    return f"{question.__module__}.{question.__qualname__} {opened.key} {args!r}"


@dataclass
class Shelf:
    """The latest answers of questions that show their progress.

    Streamlit's own cache replays what is drawn inside it, so nothing can be drawn while it works.
    """

    kept: OrderedDict[str, Any] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def look_up(self, key: str) -> Any | None:
        """What is kept under a key."""
        with self.lock:
            if key in self.kept:
                self.kept.move_to_end(key)
            return self.kept.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a value, and forget the one that was not asked for longest."""
        with self.lock:
            self.kept[key] = value
            while len(self.kept) > KEPT_SWEEPS:
                self.kept.popitem(last=False)


@st.cache_resource(show_spinner=False)
def _shelf() -> Shelf:
    return Shelf()


def known(question: Callable[..., T], opened: Opened, *args: Any) -> T | None:
    """The answer to a long question if it was worked out before, else None."""
    return _shelf().look_up(_key(question, opened, args))


def work_out(question: Callable[..., T], opened: Opened, *args: Any, words: str) -> T:
    """The answer to a long question, with a bar that shows how far it is.

    Any click meanwhile ends the work: Streamlit raises out of the bar's next update. Interventions
    belong to a call, so nothing is left on the model.
    """
    before = known(question, opened, *args)
    if before is not None:
        return before
    bar = st.progress(0.0, text=words)
    try:
        found = question(
            opened, *args, progress=lambda done, total: bar.progress(done / total, text=words)
        )
    except sources.UnreadableError:
        bar.empty()
        raise
    bar.empty()
    _shelf().put(_key(question, opened, args), found)
    return found


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The training processes that were started from the page."""
    return Jobs()
