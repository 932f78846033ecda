"""Plain and damped iteration."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from robustdeq.solve.solver import Solver

Point = tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]
"""The current z and g, which is all that this solver remembers."""


@dataclass(frozen=True, kw_only=True)
class Picard(Solver):
    """z <- (1 - damping) z + damping f(z); damping is the weight of f."""

    damping: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.damping <= 2:
            raise ValueError(f"damping is the weight of f and must lie in (0, 2], got {self.damping}")

    @override
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> Point:
        return z, g

    @override
    def propose(self, memory: Point) -> tuple[Float[Tensor, "B D"], Point]:
        z, g = memory
        return z + self.damping * g, memory

    @override
    def observe(self, memory: Point, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> Point:
        return z, g

    @override
    def rebase(self, memory: Point, g: Float[Tensor, "B D"]) -> Point:
        return memory[0], g
