"""Ctrl-C and SIGTERM end a long job with a message, an exit code, and its results stored."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SAME = 1.0
"""Seconds within which a second SIGINT counts as the first one, sent on by another process."""

Handler = Callable[[int, FrameType | None], None]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM arrived: finished work is stored, and the same command resumes."""

    def __init__(self, number: int, stored: str) -> None:
        super().__init__(f"{signal.Signals(number).name}: {stored}; run the same command again to resume")
        self.code = 128 + number
        """Exit code, as shells have it."""


class _Signal(KeyboardInterrupt):
    """Raised wherever the signal arrived, which may be anywhere."""


@contextmanager
def _handling(handler: Handler) -> Iterator[dict[int, Any]]:
    """Handle both signals inside; yields the handlers from before. Only the main thread can handle signals."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield before
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stopping(stored: Callable[[], str]) -> Iterator[None]:
    """A signal stops the work inside at once and raises `Interrupted`, which says what `stored` returns."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)  # a second signal must not disturb the clean-up after the first
        raise _Signal(number)

    with _handling(stop):
        try:
            yield
        except _Signal as caught:
            raise Interrupted(int(caught.args[0]), stored()) from None


@contextmanager
def remembering() -> Iterator[list[int]]:
    """Inside, signals are only appended to the yielded list, until the step in hand is done and saved.

    A second SIGINT acts at once: Ctrl-C is pressed again by a person who will not wait. But programs repeat signals
    too: a terminal, `timeout` or a scheduler signals a whole process group, and torchrun sends on what it receives.
    Therefore a SIGINT within a second of the first one is the same one, and SIGTERM never acts at once.
    """
    received: list[int] = []
    first: list[float] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGINT:
            first.append(time.monotonic())
            if first[-1] - first[0] >= SAME:
                signal.signal(number, before.pop(number))
                signal.raise_signal(number)

    with _handling(remember) as before:
        yield received
