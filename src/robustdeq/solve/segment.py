"""Broyden's method in segments, as the paper's released defence runs it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from robustdeq.solve.broyden import Broyden
from robustdeq.solve.lowrank import LowRankInverse


@dataclass(frozen=True, eq=False)
class SegmentMemory:
    """The factors of a segment, the current point, and the last step, which is not yet a factor."""

    first: LowRankInverse
    """B of the segment's first proposal."""
    inverse: LowRankInverse
    """-I and the factors of all steps of this segment except the last."""
    z: Float[Tensor, "B D"]
    g: Float[Tensor, "B D"]
    step: tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]] | None = None
    """dz and dg of the last step."""


@dataclass(frozen=True, kw_only=True)
class SegmentBroyden(Broyden):
    """A segment of a Broyden iteration whose f changed since the segment before.

    The first proposal uses the previous segment's factors, the last of them recomputed with dg' = dg + g_new - g_last,
    where g_new is the new f's g at the point handed on. Later proposals rebuild B from -I.
    """

    previous: SegmentMemory | None = field(default=None, repr=False, compare=False)
    """The memory at the end of the segment before."""

    @override
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> SegmentMemory:  # type: ignore[override]
        """The first step uses the factors that were handed on; the segment has none of its own yet."""
        identity = LowRankInverse.identity(z, self.max_steps)
        if self.previous is None or self.previous.step is None:
            return SegmentMemory(identity, identity, z, g)
        dz, dg = self.previous.step
        return SegmentMemory(_with_secant(self.previous.inverse, dz, dg + g - self.previous.g), identity, z, g)

    @override
    def propose(self, memory: SegmentMemory) -> tuple[Float[Tensor, "B D"], SegmentMemory]:  # type: ignore[override]
        if memory.step is None:
            return memory.z - memory.first.apply(memory.g), memory
        inverse = _with_secant(memory.inverse, *memory.step)
        return memory.z - inverse.apply(memory.g), replace(memory, inverse=inverse)

    @override
    def observe(  # type: ignore[override]
        self, memory: SegmentMemory, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]
    ) -> SegmentMemory:
        """The new point; a row that did not move is frozen and keeps its last step."""
        dz, dg, inverse = z - memory.z, g - memory.g, memory.inverse
        if memory.step is not None:
            moved = (dz != 0).any(1)
            dz, dg = (torch.where(moved[:, None], *pair) for pair in zip((dz, dg), memory.step, strict=True))
            last = torch.where(moved, inverse.scale[:, -1], 0.0)
            inverse = replace(inverse, scale=torch.cat([inverse.scale[:, :-1], last[:, None]], 1))
        return SegmentMemory(memory.first, inverse, z, g, (dz, dg))

    @override
    def rebase(self, memory: SegmentMemory, g: Float[Tensor, "B D"]) -> SegmentMemory:  # type: ignore[override]
        """All factors of the segment are kept; before its first step these are the ones handed on."""
        if memory.step is None:
            return replace(memory, g=g)
        inverse = self.inverse(memory)
        return SegmentMemory(inverse, inverse, memory.z, g)

    @override
    def inverse(self, memory: SegmentMemory) -> LowRankInverse:  # type: ignore[override]
        return memory.first if memory.step is None else _with_secant(memory.inverse, *memory.step)


def _with_secant(inverse: LowRankInverse, dz: Float[Tensor, "B D"], dg: Float[Tensor, "B D"]) -> LowRankInverse:
    """B with the factor v^T = dz^T B, u = (dz - B dg) / (v^T dg), dropped where that is not finite."""
    v = inverse.apply_transposed(dz)
    u = dz - inverse.apply(dg)
    denominator = (v * dg).sum(1)
    usable = torch.isfinite(denominator.reciprocal()) & torch.isfinite(u).all(1) & torch.isfinite(v).all(1)
    scale = torch.where(usable, torch.where(usable, denominator, 1.0).reciprocal(), 0.0)
    u, v = (torch.where(usable[:, None], side, 0.0) for side in (u, v))
    return inverse.append(u, v, scale)
