"""Ctrl-C and SIGTERM: remembered until the step is done and saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(RuntimeError):
    """Ctrl-C or SIGTERM: the state was saved, the same command goes on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class StopSignals:
    """While entered, the first SIGINT or SIGTERM is only remembered; the same once more acts at once.

    Only the same: Ctrl-C in a terminal reaches a whole group, and a parent that got it too sends SIGTERM on.
    Outside the main thread signals cannot be handled, and nothing is changed.
    """

    def __init__(self) -> None:
        self.received = 0
        """The first signal's number; 0 if there was none."""
        self._handlers: dict[int, Any] = {}

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
        signal.signal(signum, self._handlers.pop(signum))
