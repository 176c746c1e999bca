"""Stopping by a signal, between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TrainingStopped(KeyboardInterrupt):  # noqa: N818 (it is a request, not an error)
    """Training was asked to stop (Ctrl-C, SIGTERM), and did: the run is saved and can go on.

    Attributes:
        signal: Which signal.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.signal = number


class StopRequest:
    """Whether somebody asked for the end; a second request is not waited for."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        if self.signal is not None:
            raise KeyboardInterrupt("stopped at once: asked twice")
        self.signal = number


@contextmanager
def listening_for_stop() -> Iterator[StopRequest]:
    """Signals become a request while the block runs; afterwards they do what they did before.

    Only the main thread receives signals: elsewhere there is never a request.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.receive) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
