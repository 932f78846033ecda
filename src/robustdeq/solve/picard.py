"""Plain and damped iteration."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from robustdeq.solve.solver import Solver


@dataclass(frozen=True, eq=False)
class PicardMemory:
    """The current point."""

    z: Float[Tensor, "B D"]
    g: Float[Tensor, "B D"]


@dataclass(frozen=True, kw_only=True)
class Picard(Solver):
    """z <- (1 - damping) z + damping f(z); damping is the weight of f."""

    damping: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.damping <= 2:
            raise ValueError(f"damping is the weight of f and must lie in (0, 2], got {self.damping}")

    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> PicardMemory:
        """Nothing but the point."""
        return PicardMemory(z, g)

    def propose(self, memory: PicardMemory) -> tuple[Float[Tensor, "B D"], PicardMemory]:
        """A step along g."""
        return memory.z + self.damping * memory.g, memory

    def observe(self, memory: PicardMemory, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> PicardMemory:
        """The new point."""
        return PicardMemory(z, g)

    def rebase(self, memory: PicardMemory, g: Float[Tensor, "B D"]) -> PicardMemory:
        """Nothing was learnt about f but g here."""
        return PicardMemory(memory.z, g)
