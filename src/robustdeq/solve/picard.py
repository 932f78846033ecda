"""Plain and damped iteration."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

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

    @override
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> PicardMemory:
        return PicardMemory(z, g)

    @override
    def propose(self, memory: PicardMemory) -> tuple[Float[Tensor, "B D"], PicardMemory]:
        return memory.z + self.damping * memory.g, memory

    @override
    def observe(self, memory: PicardMemory, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> PicardMemory:
        return PicardMemory(z, g)

    @override
    def rebase(self, memory: PicardMemory, g: Float[Tensor, "B D"]) -> PicardMemory:
        """Only g at the current point changes: this solver has no other memory."""
        return PicardMemory(memory.z, g)
