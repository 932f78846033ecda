"""State policies: which state of the dynamics a training forward reads (Sec. 3.3 of the paper)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from robustdeq.models.deq import Readout
from robustdeq.training.draws import Draws


@dataclass(frozen=True)
class Depth:
    """How far a forward's solver runs, and which iterate is read."""

    max_steps: int
    readout: Readout


@dataclass(frozen=True)
class StatePolicy(ABC):
    """Chooses the depth of each forward pass."""

    @abstractmethod
    def depth(self, max_steps: int, draws: Draws, name: str) -> Depth:
        """For the forward of this name, with at most `max_steps` solver steps."""

    @property
    @abstractmethod
    def varies(self) -> bool:
        """Whether two forwards may have different depths."""


@dataclass(frozen=True)
class Final(StatePolicy):
    """All steps, the lowest-residual iterate: the baseline."""

    def depth(self, max_steps: int, draws: Draws, name: str) -> Depth:
        """N steps."""
        return Depth(max_steps, "lowest")

    @property
    def varies(self) -> bool:
        """No."""
        return False


@dataclass(frozen=True)
class RandomState(StatePolicy):
    """t ~ Uniform{1..N} steps, drawn once per forward for the whole batch.

    paper: z^[t] itself (Eq. sec33). released: the lowest-residual iterate of the first t.
    """

    variant: Literal["paper", "released"] = "paper"

    def __post_init__(self) -> None:
        if self.variant not in ("paper", "released"):
            raise ValueError(f"variant must be 'paper' or 'released', got {self.variant!r}")

    def depth(self, max_steps: int, draws: Draws, name: str) -> Depth:
        """A draw of its own for every forward."""
        return Depth(draws.integer(f"depth.{name}", 1, max_steps), "last" if self.variant == "paper" else "lowest")

    @property
    def varies(self) -> bool:
        """Yes."""
        return True
