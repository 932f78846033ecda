"""How far an evaluation is, how long the rest will take, and where the accuracy under all attacks must lie."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.store import Store
from robustdeq.threat import Threat

EVERY = 1.0
"""Seconds between two progress reports within an attack."""
DEPLOYED_ROWS = pl.col("deployed") & (pl.col("predictor") == "deployed")
"""Rows of the deployed predictor at its deployed state."""


@dataclass(frozen=True)
class Interval:
    """Bounds of an accuracy."""

    low: float
    """Share of images that are still right after all attacks on them are done."""
    high: float
    """Share of images that no attack has broken yet."""


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
    """Expected seconds to the end; None where they are not known: before anything is done, when an attack has taken
    longer than expected, and after the attacks."""
    robust: Interval
    """Where the accuracy under the union of all attacks must lie."""


@dataclass(frozen=True)
class Effort:
    """What work items take: evaluations of f to attack, and images to score on every predictor."""

    cost: float = 0.0
    images: float = 0.0

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.cost + other.cost, self.images + other.images)


class Deadline:
    """The end of a time budget that several runs share; the clock starts when it is first asked."""

    def __init__(self, budget: float | None) -> None:
        self.budget, self.started = budget, -1.0

    def left(self) -> float | None:
        """Seconds that are left, at least 0; None without a budget."""
        now = time.monotonic()
        self.started = now if self.started < 0 else self.started
        return None if self.budget is None else max(0.0, self.budget - (now - self.started))


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

    def remaining(self, effort: Effort, *, within: bool) -> float | None:
        """Expected seconds for this effort; `within` says that work of it is under way, whose time passes.

        None before anything is done, and where the work under way has outlasted its forecast.
        """
        expected, own = self.forecast(effort), self.forecast(self._effort)
        if not within or expected is None or own is None:
            return expected
        return expected - self.elapsed() if self.elapsed() <= own else None


class Bounds:
    """Follows which images are broken and which still have attacks to face; reads each finished file once."""

    def __init__(self, store: Store, specs: Sequence[AttackSpec], threat: Threat, images: int, shard_size: int) -> None:
        self.store = store
        self.shard_size = shard_size
        self.limits: dict[str | None, int] = {None: images} | {
            spec.name: spec.runs_on(images) for spec in specs if spec.counts(threat)
        }
        self.unbroken = np.ones(images, dtype=bool)
        self.pending = np.zeros(images, dtype=int)
        for limit in self.limits.values():
            self.pending[:limit] += 1
        self._included: set[tuple[str | None, int]] = set()

    def include(self, attack: str | None, shard: int) -> None:
        """Take a finished shard of an attack (None: of the clean predictions) into account, once."""
        if attack not in self.limits or (attack, shard) in self._included:
            return
        self._included.add((attack, shard))
        failed = ~pl.col("correct") if attack is None else pl.col("success")
        broken = self.store.shard_rows(attack, shard).filter(DEPLOYED_ROWS & failed).select("image").collect()["image"]
        self.unbroken[broken.to_numpy()] = False
        begin = shard * self.shard_size
        self.pending[begin : min(begin + self.shard_size, self.limits[attack])] -= 1

    def now(self) -> Interval:
        """The bounds as things stand."""
        done = self.pending == 0
        return Interval(low=float((self.unbroken & done).mean()), high=float(self.unbroken.mean()))
