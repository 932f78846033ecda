"""How fast a training goes now, and how long it will still take."""

from __future__ import annotations

from collections import deque

WINDOW = 50
"""Steps that the speed is the mean of."""


class Pace:
    """Seconds of the last steps of one kind and of the last validation; other kinds of steps cost something else."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._validation = 0.0

    def stepped(self, phase: str, seconds: float) -> None:
        """A step of this phase took so long."""
        if phase != self._phase:
            self._phase = phase
            self._steps.clear()
        self._steps.append(seconds)

    def validated(self, seconds: float) -> None:
        """A validation took so long."""
        self._validation = seconds

    def step(self) -> float:
        """Seconds of a step, validations apart."""
        return sum(self._steps) / len(self._steps) if self._steps else 0.0

    def remaining(self, steps: int, validations: int) -> float:
        """Seconds of so many more of both."""
        return steps * self.step() + validations * self._validation
