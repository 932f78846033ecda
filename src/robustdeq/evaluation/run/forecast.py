"""Foretells how long attacks will take, from those before them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """What a piece of work takes."""

    cost: float
    """Of the attack, in evaluations of f."""
    images: float
    """That are then scored, on every predictor."""

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.cost + other.cost, self.images + other.images)

    def __mul__(self, share: float) -> Effort:
        return Effort(self.cost * share, self.images * share)


NOTHING = Effort(0.0, 0.0)


class Forecast:
    """Attacking and scoring each have a pace of their own: with defended predictors to score on, few attacks cost most.

    Time that nobody has measured yet is None, not zero.
    """

    def __init__(self) -> None:
        self.done = NOTHING
        self.attacking = self.scoring = 0.0

    def learn(self, effort: Effort, seconds: float, scoring: float) -> None:
        """Take in what was done, the seconds that all of it took and those that the scoring took of them."""
        self.done += effort
        self.attacking += seconds - scoring
        self.scoring += scoring

    def seconds(self, effort: Effort) -> float | None:
        """How long this will take; None before anything is done."""
        if not self.done.cost or not self.done.images:
            return None
        return effort.cost * self.attacking / self.done.cost + effort.images * self.scoring / self.done.images
