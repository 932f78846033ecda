"""How far an evaluation is, how fast it goes, and how long the rest will take."""

from __future__ import annotations

import time
from dataclasses import dataclass

from robustdeq.evaluation.run.bounds import Interval

EVERY = 1.0
"""Seconds between two progress reports within an attack."""


@dataclass(frozen=True)
class Progress:
    """What an evaluation reports while it runs."""

    doing: str
    done: int
    """Work items that are done, of `total`."""
    total: int
    rate: float
    """Images per second and attack, over this run."""
    remaining: float | None
    """Expected seconds to the end; None before anything is done."""
    robust: Interval
    """Where the accuracy under the union of all attacks must lie."""


@dataclass(frozen=True)
class Effort:
    """What work items take: evaluations of f to attack, and images to score on every predictor."""

    cost: float = 0.0
    images: float = 0.0

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.cost + other.cost, self.images + other.images)


class Tracker:
    """Times the work items and forecasts the next ones.

    Attacking and scoring have a pace each: with many defended predictors to score on, scoring takes most of the time.
    """

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        self.started = time.monotonic()
        self.done, self.attacking, self.scoring = Effort(), 0.0, 0.0
        self.images = 0
        self._began = self._reported = self.started
        self._effort = Effort()

    def begin(self, effort: Effort) -> None:
        """Start timing work of this effort."""
        self._began = self._reported = time.monotonic()
        self._effort = effort

    def finish(self, images: int, scoring: float) -> None:
        """Learn from finished work: images attacked, and the seconds that scoring took of the whole."""
        self.attacking += self.elapsed() - scoring
        self.scoring += scoring
        self.done += self._effort
        self.images += images

    def elapsed(self) -> float:
        """Seconds since `begin`."""
        return time.monotonic() - self._began

    def rate(self) -> float:
        """Attacked images per second."""
        seconds = self.attacking + self.scoring
        return self.images / seconds if seconds else 0.0

    def forecast(self, effort: Effort) -> float | None:
        """Expected seconds for this effort; None before anything is done."""
        if not self.done.cost or not self.done.images:
            return None
        return effort.cost * self.attacking / self.done.cost + effort.images * self.scoring / self.done.images

    def over_budget(self, effort: Effort = Effort()) -> bool:
        """Whether the budget is spent, or would be before this effort is done."""
        return self.budget is not None and time.monotonic() - self.started + (self.forecast(effort) or 0) > self.budget

    def is_due(self) -> bool:
        """Whether the last report within the work under way is long enough ago; resets that clock."""
        due = time.monotonic() - self._reported >= EVERY
        self._reported = time.monotonic() if due else self._reported
        return due

    def spent(self) -> float:
        """Seconds of the forecast for the work under way that have passed."""
        return min(self.elapsed(), self.forecast(self._effort) or 0.0)
