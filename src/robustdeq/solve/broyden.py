"""Broyden's ("good") method on g(z) = f(z) - z."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from robustdeq.solve.lowrank import LowRankInverse
from robustdeq.solve.solver import Solver


@dataclass(frozen=True, eq=False)
class BroydenMemory:
    """Factors, the current point, and the last step.

    The last step becomes a factor only when the next proposal needs it, so that the last step of a solve does not
    compute a factor that is never used.
    """

    inverse: LowRankInverse
    z: Float[Tensor, "B D"]
    g: Float[Tensor, "B D"]
    step: tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]] | None = None
    """B g and g at the point where the last step started; dz was a multiple of B g."""


@dataclass(frozen=True, kw_only=True)
class Broyden(Solver):
    """z_t = z_{t-1} - B g_{t-1}, no line search; B = -I + sum_k u_k v_k^T approximates the inverse Jacobian of g.

    After each step v^T = dz^T B and u = (dz - B dg) / (v^T dg); a factor whose denominator vanishes is dropped.

    Because dz = -B g_{t-1}, the numerator is -B g_t, and since only u v^T / (v^T dg) matters, v may be B^T applied to
    any multiple of dz. So a step needs two products, B g_t and B^T (B g_{t-1}), and its factor is stored as computed.
    """

    @override
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> BroydenMemory:
        """B = -I, so the first proposal is f(z)."""
        return BroydenMemory(LowRankInverse.identity(z, min(self.max_steps, 8)), z, g)

    @override
    def propose(self, memory: BroydenMemory) -> tuple[Float[Tensor, "B D"], BroydenMemory]:
        """z - B g, after the last step has become a factor of B."""
        z, g = memory.z, memory.g
        if memory.step is None:
            direction = memory.inverse.apply(g)
            return z - direction, BroydenMemory(memory.inverse, z, g, (direction, g))
        inverse, v_g = _absorb(memory)
        direction = inverse.u[:, -1]  # B g before this factor; with it, B g = direction (1 + scale v^T g)
        length = 1 + inverse.scale[:, -1] * v_g
        return torch.addcmul(z, direction, length[:, None], value=-1), BroydenMemory(inverse, z, g, (direction, g))

    @override
    def observe(self, memory: BroydenMemory, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> BroydenMemory:
        """The new point; the step that led to it is not yet a factor."""
        return BroydenMemory(memory.inverse, z, g, memory.step)

    @override
    def rebase(self, memory: BroydenMemory, g: Float[Tensor, "B D"]) -> BroydenMemory:
        """All factors are kept, including that of the last step, which belongs to the old f."""
        return BroydenMemory(self.inverse(memory), memory.z, g)

    @override
    def inverse(self, memory: BroydenMemory) -> LowRankInverse:
        return memory.inverse if memory.step is None else _absorb(memory)[0]


def _absorb(memory: BroydenMemory) -> tuple[LowRankInverse, Float[Tensor, " B"]]:
    """B with the factor of the last step, whose left side is B g with the old B; and v^T g of this factor."""
    assert memory.step is not None
    (direction, g_before), g = memory.step, memory.g
    inverse, u, v = memory.inverse.with_products(direction, g)
    denominator = _dot(v, g - g_before)
    usable = torch.isfinite(denominator.reciprocal())
    # replaced inside the reciprocal too: otherwise autograd would multiply 0 by the infinite slope of 1/x at 0
    scale = torch.where(usable, -torch.where(usable, denominator, 1.0).reciprocal(), 0.0)
    return inverse.append(u, v, scale), _dot(v, g)


def _dot(a: Float[Tensor, "B D"], b: Float[Tensor, "B D"]) -> Float[Tensor, " B"]:
    """Inner products as a batched matmul, which unlike `vecdot` does not write the products to memory."""
    return (a[:, None] @ b[:, None].mT)[:, 0, 0]
