"""How far a command is: a bar on a terminal, in a log a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from robustdeq.cli.clock import clock

FIRST, EVERY, SHARE = 2.0, 30.0, 0.01
"""Seconds until the first line in a log; between the others this many, or this share of the time so far."""

Say = Callable[[str], None]
Count = Callable[[str, int, int], None]
Share = Callable[[Mapping[str, float]], None]


@contextmanager
def counting(console: Console) -> Iterator[Count]:
    """A function to be told the words, how many are done and of how many; the time left is the words' business."""
    if not console.is_terminal:
        with _lines(console) as lines:
            yield lambda words, done, total: lines.say(f"{done:,} of {total:,}  {words}")
        return
    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda words, done, total: bar.update(task, description=words, completed=done, total=total)


@contextmanager
def saying(console: Console) -> Iterator[Say]:
    """A function to be told what is being done."""
    if not console.is_terminal:
        with _lines(console) as lines:
            yield lines.say
        return
    with console.status("starting") as status:
        yield lambda words: status.update(Text(words))


@contextmanager
def sharing(console: Console) -> Iterator[Share]:
    """A function to be told what is being done side by side, and which share of each is done."""
    if not console.is_terminal:
        so_far = _SoFar()
        with _lines(console) as lines:
            yield lambda shares: lines.say(so_far.words(shares)) if shares else lines.forget()
        return
    words = TextColumn("{task.description}", markup=False)
    percent = TextColumn("{task.percentage:3.0f} %")
    with Progress(words, BarColumn(), percent, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def show(shares: Mapping[str, float]) -> None:
            for what in [what for what in tasks if what not in shares]:
                bar.remove_task(tasks.pop(what))
            for what, share in shares.items():
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=1.0)
                bar.update(tasks[what], completed=share)

        yield show


class _SoFar:
    """Shares as words, and when all will be done if it goes on so."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[float, float]] = {}

    def words(self, shares: Mapping[str, float]) -> str:
        """For one line."""
        return "; ".join(self._one(what, share) for what, share in shares.items())

    def _one(self, what: str, share: float) -> str:
        now = time.monotonic()
        since, before = self.began.setdefault(what, (now, share))  # what an earlier command did took no time of this
        done = share - before
        left = f", {clock((now - since) * (1 - share) / done)} left" if done > 0 else ""
        return f"{what}: {share:.0%}{left}"


class _Lines:
    """Words for a log, the newest of them now and then."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.began = time.monotonic()
        self.next = self.began + FIRST
        self.held: str | None = None
        self.printed = False
        self.lock = threading.Lock()
        self.timer: threading.Timer | None = None

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.began

    def say(self, words: str) -> None:
        """Print the words if the last line was long ago; else then, whatever the command is at."""
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
            self._rest()
            if self.held is None:
                return
            self.console.print(f"{clock(self.elapsed)}  {self.held}", soft_wrap=True, highlight=False, markup=False)
            self.console.file.flush()
            self.held, self.next, self.printed = None, time.monotonic() + max(EVERY, SHARE * self.elapsed), True

    def forget(self) -> None:
        """The newest words are not true any more."""
        with self.lock:
            self.held = None

    def end(self) -> None:
        """Say where it ended; a short command needs no word on that."""
        if self.printed:
            self.flush()
        with self.lock:
            self._rest()

    def _rest(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@contextmanager
def _lines(console: Console) -> Iterator[_Lines]:
    lines = _Lines(console)
    try:
        yield lines
    finally:
        lines.end()
