"""State policies: which state of the dynamics a forward pass of training reads (Sec. 3.3 of the paper)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from robustdeq.models.deq import Readout
from robustdeq.training.draws import Draws


@dataclass(frozen=True)
class Depth:
    """How many steps the solver of a pass takes, and which iterate is read."""

    max_steps: int
    readout: Readout


@dataclass(frozen=True)
class StatePolicy(ABC):
    """Chooses the depth of every forward pass."""

    @abstractmethod
    def depth(self, max_steps: int, draws: Draws, name: str) -> Depth:
        """The depth of the pass of this name, at most `max_steps` solver steps."""

    @property
    @abstractmethod
    def varies(self) -> bool:
        """Whether two passes may have different depths."""


@dataclass(frozen=True)
class Final(StatePolicy):
    """All steps, the lowest-residual iterate: the baseline."""

    @override
    def depth(self, max_steps: int, draws: Draws, name: str) -> Depth:
        return Depth(max_steps, "lowest")

    @property
    @override
    def varies(self) -> bool:
        return False


@dataclass(frozen=True)
class RandomState(StatePolicy):
    """t ~ Uniform{1..N} steps, drawn once per pass for the whole batch; every pass has a draw of its own.

    Variant "paper" reads z^[t] itself (Eq. sec33), "released" the lowest-residual iterate of the first t.
    """

    variant: Literal["paper", "released"] = "paper"

    def __post_init__(self) -> None:
        if self.variant not in ("paper", "released"):
            raise ValueError(f"variant must be 'paper' or 'released', got {self.variant!r}")

    @override
    def depth(self, max_steps: int, draws: Draws, name: str) -> Depth:
        return Depth(draws.integer(f"depth.{name}", 1, max_steps), "last" if self.variant == "paper" else "lowest")

    @property
    @override
    def varies(self) -> bool:
        return True
