"""A campaign of seeded hostile cases: what goes in is damaged, odd or far too large, what comes out is counted.

A case is right if it answers as ever, or refuses in a sentence. It is wrong if an error comes from somewhere deep
(traceback), if it takes too long (hang), if a number differs and nothing says so (silent), or if rows are missing and
nothing says so (lost).
"""

from __future__ import annotations

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 20.0
"""Seconds after which a case hangs."""
WRONG = ("traceback", "hang", "silent", "lost")


class Silent(Exception):
    """A number differs, and nothing said so."""


class Lost(Exception):
    """Rows are missing, and nothing said so."""


class _Hangs(BaseException):
    """Raised inside a case that takes too long."""


@dataclass
class Tally:
    """What became of the cases of a kind."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """The first wrong cases, each with its number and its error."""

    @property
    def cases(self) -> int:
        return sum(self.counts.values())

    @property
    def wrong(self) -> int:
        return sum(self.counts[name] for name in WRONG)


Case = Callable[[], object]
Generator = Callable[[Path, np.random.Generator], Iterator[Case]]
"""Cases without end, in a folder of their own; drawing the next one leaves everything in place for it."""


def run(kind: str, generator: Generator, folder: Path, *, cases: int, seed: int, limit: float = LIMIT) -> Tally:
    """Run so many cases of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    tally = Tally(kind)
    stream = generator(folder, np.random.default_rng([seed, *kind.encode()]))
    for number in range(cases):
        outcome, said = judged(next(stream), limit)
        tally.counts[outcome] += 1
        if outcome in WRONG and len(tally.examples) < 20:
            tally.examples.append(f"{kind} {number}, seed {seed}: {outcome}: {said}")
    return tally


def judged(case: Case, limit: float = LIMIT) -> tuple[str, str]:
    """What becomes of a case, and the last lines of its error."""
    try:
        with _alarm(limit):
            case()
    except _Hangs:
        return "hang", traceback.format_exc(limit=-3)
    except Silent as error:
        return "silent", str(error)
    except Lost as error:
        return "lost", str(error)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        return ("refused", "") if is_sentence(error) else ("traceback", _where(error))
    return "answered", ""


def is_sentence(error: BaseException) -> bool:
    """Whether an error was written for a person: ours says it, and in words."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = bool(frames) and "robustdeq" in Path(frames[-1].filename).parts
    return ours and isinstance(error, ValueError | TypeError | OSError | RuntimeError) and " " in str(error)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    place = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:200]} ({place})"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def table(tallies: list[Tally]) -> str:
    """The campaign as text: cases and what became of them, by kind."""
    names = ("answered", "refused", *WRONG)
    lines = [f"{'kind':14}{'cases':>8}" + "".join(f"{name:>11}" for name in names)]
    for tally in [*tallies, _sum(tallies)]:
        lines.append(f"{tally.kind:14}{tally.cases:8,}" + "".join(f"{tally.counts[name]:11,}" for name in names))
    return "\n".join(lines)


def _sum(tallies: list[Tally]) -> Tally:
    return Tally("all", sum((tally.counts for tally in tallies), Counter()))
