"""The base class of solvers: a frozen set of options with pure functions on a memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from robustdeq.solve.lowrank import LowRankInverse

Map: TypeAlias = Callable[[Tensor], Tensor]
"""z -> f(z), batch first, the shape preserved."""


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A method for f(z) = z, as its options; the loop in `robustdeq.solve.loop` runs it.

    A solver proposes the next iterate from its memory and then observes g = f(z) - z there. Calling f, stopping and
    freezing samples is up to the loop. The memory is opaque to the loop; rows are samples, and no operation may mix
    them.
    """

    max_steps: int = 8
    """Number of steps N; N steps cost N + 1 evaluations of f."""
    criterion: Literal["relative", "absolute"] = "relative"
    """Residual: ||g|| / (||f(z)|| + 1e-9), or ||g||."""
    divergence: float = 1e3
    """A sample stops when its residual exceeds this multiple of its first one."""
    batch_coupled: bool = False
    """Stop and choose the result by one residual of the whole batch, as the paper's released code does. A sample's
    result then depends on the rest of its batch; only for comparison with that code."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_steps, int) or self.max_steps < 1:
            raise ValueError(f"max_steps must be an integer of at least 1, got {self.max_steps}")
        if self.criterion not in ("relative", "absolute"):
            raise ValueError(f"criterion must be 'relative' or 'absolute', got {self.criterion!r}")
        if not self.divergence > 1:
            raise ValueError(f"divergence must be greater than 1, got {self.divergence}")

    @abstractmethod
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> Any:
        """The memory at the initial point z, where f(z) - z = g."""

    @abstractmethod
    def propose(self, memory: Any) -> tuple[Float[Tensor, "B D"], Any]:
        """The next iterate, and the memory to pass to `observe`."""

    @abstractmethod
    def observe(self, memory: Any, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> Any:
        """The memory after g was evaluated at z (the proposal, except in rows that the loop has frozen)."""

    @abstractmethod
    def rebase(self, memory: Any, g: Float[Tensor, "B D"]) -> Any:
        """The memory after f has changed: g is that of the new f at the same z; what was learnt about f is kept."""

    def inverse(self, memory: Any) -> LowRankInverse | None:
        """The estimate of (dg/dz)^-1 at the current iterate; None if this solver keeps none."""
        return None


def row_norms(x: Tensor) -> Tensor:
    """Norm of each sample, never zero, in a shape that divides x."""
    norms = torch.linalg.vector_norm(x.reshape(len(x), -1), dim=1).clamp_min(torch.finfo(x.dtype).tiny)
    return norms.reshape(-1, *[1] * (x.ndim - 1))
