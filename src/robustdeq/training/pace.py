"""Seconds per training step, and the estimate of the remaining time."""

from __future__ import annotations

from collections import deque

WINDOW = 50
"""Number of recent steps that the speed is averaged over."""


class Pace:
    """Times of recent steps of the current phase and of the last validation; phases differ in cost."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._validation = 0.0

    def stepped(self, phase: str, seconds: float) -> None:
        """Note the seconds of a step of this phase."""
        if phase != self._phase:
            self._phase = phase
            self._steps.clear()
        self._steps.append(seconds)

    def validated(self, seconds: float) -> None:
        """Note the seconds of a validation."""
        self._validation = seconds

    def step(self) -> float:
        """Mean seconds per step, without validations."""
        return sum(self._steps) / len(self._steps) if self._steps else 0.0

    def remaining(self, steps: int, validations: int) -> float:
        """Seconds that this many further steps and validations will take."""
        return steps * self.step() + validations * self._validation
