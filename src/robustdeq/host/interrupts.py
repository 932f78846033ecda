"""Ctrl-C and SIGTERM end an evaluation with a message."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: everything finished is stored, the same command goes on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Signal(KeyboardInterrupt):
    """Raised where the signal hit, which may be anywhere."""


@contextmanager
def stopping(stored: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM raise `Interrupted`, which says what is stored; only the main thread can handle them."""

    def stop(number: int, frame: FrameType | None) -> None:
        for signum in before:
            signal.signal(signum, signal.SIG_IGN)  # a second one must not disturb the clean-up of the first
        raise _Signal(number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {signum: signal.signal(signum, stop) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _Signal as caught:
        number = int(caught.args[0])
        message = f"{signal.Signals(number).name}: {stored()}; the same command goes on"
        raise Interrupted(message, 128 + number) from None
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
