"""The progress of a command: a bar or a spinner on a terminal, a line now and then in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from robustdeq.host.terminal import carries, printable

FIRST, EVERY, SHARE = 2.0, 30.0, 0.01
"""Seconds until the first line in a log; later lines follow after EVERY seconds or SHARE of the time so far."""

Say = Callable[[str], None]
Count = Callable[[str, int, int], None]


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, such as 1:05:09."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def left(done: int | float, total: int | float, elapsed: float) -> str:
    """The end of a line of progress: the time that is left if the rest takes as long as what is done."""
    return f", {clock(elapsed / done * (total - done))} left" if done > 0 else ""


@contextmanager
def counting(console: Console) -> Iterator[Count]:
    """Yields a function of a description, the number that is done and the total; the caller says what time is left."""
    if not console.is_terminal:
        with closing(_Lines(console)) as lines:
            yield lambda words, done, total: lines.say(f"{done:,} of {total:,}  {words}")
        return
    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda words, done, total: bar.update(task, description=printable(words), completed=done, total=total)


@contextmanager
def saying(console: Console) -> Iterator[Say]:
    """Yields a function that is told what is being done; "" takes back what has not been printed yet."""
    if not console.is_terminal:
        with closing(_Lines(console)) as lines:
            yield lines.say
        return
    dots = "dots" if carries(console.file, "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") else "line"
    with console.status("starting", spinner=dots) as status:
        yield lambda words: status.update(Text(printable(words)))


class _Lines:
    """Prints the newest words to a log, but not too often."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.began = time.monotonic()
        self.next = self.began + FIRST
        self.held = ""
        self.printed = False
        self.lock = threading.Lock()
        self.timer: threading.Timer | None = None

    def say(self, words: str) -> None:
        """Print the words, at once if the last line was long ago; else a timer does, however long the command works."""
        with self.lock:
            self.held = words
            wait = self.next - time.monotonic()
            if wait > 0 and self.timer is None:
                self.timer = threading.Timer(wait, self.flush)
                self.timer.daemon = True
                self.timer.start()
        if wait <= 0:
            self.flush()

    def flush(self) -> None:
        """Print the newest words unless they have been printed."""
        with self.lock:
            self._cancel()
            if not self.held:
                return
            elapsed = time.monotonic() - self.began
            self.console.print(
                f"{clock(elapsed)}  {printable(self.held)}", soft_wrap=True, highlight=False, markup=False
            )
            self.console.file.flush()
            self.held, self.next, self.printed = "", time.monotonic() + max(EVERY, SHARE * elapsed), True

    def close(self) -> None:
        """Print the last words, unless the command was too short to print any before."""
        if self.printed:
            self.flush()
        with self.lock:
            self._cancel()

    def _cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
