"""Ctrl-C and SIGTERM: remembered until the step is done and saved."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

SAME = 1.0
"""Seconds within which a SIGINT is the one before it, sent on."""


class Interrupted(RuntimeError):
    """Ctrl-C or SIGTERM: the state was saved, the same command goes on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class StopSignals:
    """While entered, SIGTERM and the first SIGINT are only remembered; a second SIGINT, later on, acts at once.

    Ctrl-C is pressed again by a person who will not wait. Programs repeat signals too: a terminal, `timeout` or a
    scheduler signals a whole group, and a parent such as torchrun that got it sends it on at once. So of SIGINT what
    follows within a second is the same one, and SIGTERM is one however often it comes: who will not wait has SIGKILL.
    Outside the main thread signals cannot be handled, and nothing is changed.
    """

    def __init__(self) -> None:
        self.received = 0
        """The first signal's number; 0 if there was none."""
        self._handlers: dict[int, Any] = {}
        self._interrupted: float | None = None

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._handlers[signum] = signal.signal(signum, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        self._handlers = {}

    def _remember(self, signum: int, frame: FrameType | None) -> None:
        self.received = self.received or signum
        if signum != signal.SIGINT:
            return
        now = time.monotonic()
        self._interrupted = now if self._interrupted is None else self._interrupted
        if now - self._interrupted >= SAME:
            signal.signal(signum, self._handlers.pop(signum))
            signal.raise_signal(signum)
