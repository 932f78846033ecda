"""What every solver is: a frozen set of options, and pure functions on its memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

from robustdeq.solve.lowrank import LowRankInverse

Map: TypeAlias = Callable[[Tensor], Tensor]
"""z -> f(z), batch first, the shape preserved."""


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A method for f(z) = z, as its options; the loop in `robustdeq.solve.loop` runs it.

    A solver proposes the next iterate from its memory and is told what g = f(z) - z is there. It never calls f, never
    stops and never freezes anything: the loop does. Memory is opaque to the loop, rows are samples, and no operation
    may mix rows.
    """

    max_steps: int = 8
    """Steps N; N steps cost N + 1 evaluations of f."""
    criterion: Literal["relative", "absolute"] = "relative"
    """Residual: ||g|| / (||f(z)|| + 1e-9), or ||g||."""
    divergence: float = 1e3
    """A sample stops when its residual exceeds this multiple of its first one."""
    batch_coupled: bool = False
    """One residual for the whole batch drives stopping and the choice of the result, as in the paper's released code.
    A sample's result then depends on its batch-mates: for comparison with that code only."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_steps, int) or self.max_steps < 1:
            raise ValueError(f"max_steps must be an integer of at least 1, got {self.max_steps}")
        if self.criterion not in ("relative", "absolute"):
            raise ValueError(f"criterion must be 'relative' or 'absolute', got {self.criterion!r}")
        if not self.divergence > 1:
            raise ValueError(f"divergence must be greater than 1, got {self.divergence}")

    @abstractmethod
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> Any:
        """Memory that knows z and g = f(z) - z."""

    @abstractmethod
    def propose(self, memory: Any) -> tuple[Float[Tensor, "B D"], Any]:
        """The next iterate, and the memory to hand to `observe`."""

    @abstractmethod
    def observe(self, memory: Any, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> Any:
        """Memory after g has been evaluated at z (the proposal, except in rows the loop has frozen)."""

    @abstractmethod
    def rebase(self, memory: Any, g: Float[Tensor, "B D"]) -> Any:
        """Memory after f has changed: g is the new f's at the same z, what was learnt about the old f is kept."""

    def inverse(self, memory: Any) -> LowRankInverse | None:
        """The estimate of (dg/dz)^-1 at the current iterate, if this solver keeps one."""
        return None
