"""Ctrl-C as a wish, which is heard at the end of a step."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any


class Wishes:
    """Hears SIGINT and SIGTERM while it is open; the second one ends the process as usual.

    Ctrl-C under torchrun arrives twice, from the terminal and from torchrun, so what comes within a second
    counts as one.
    """

    def __init__(self) -> None:
        self.stop = False
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Wishes:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python hears no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.stop and time.monotonic() - self._since > 1:
            self._restore()
            signal.raise_signal(number)
            return
        if self.stop:
            return
        self.stop, self._since = True, time.monotonic()
        # not print: it may be what was interrupted
        os.write(2, b"\nstopping after this step; once more to stop at once\n")

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
