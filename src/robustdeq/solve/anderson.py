"""Anderson acceleration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from robustdeq.solve.solver import Solver


@dataclass(frozen=True, eq=False)
class AndersonMemory:
    """The last iterates and their g, oldest first."""

    z: Float[Tensor, "B m D"]
    g: Float[Tensor, "B m D"]
    gram: Float[Tensor, "B m m"]
    """Inner products of the rows of g, so that a step computes only the new row's."""


@dataclass(frozen=True, kw_only=True)
class Anderson(Solver):
    """z <- sum_i a_i (z_i + mixing g_i) over the last `memory` iterates, with sum a = 1 minimising ||sum_i a_i g_i||^2.

    The least-squares problem is regularised by `ridge` times its own scale, max_i ||g_i||^2, so that a solve behaves
    the same whatever the size of its residuals.
    """

    memory: int = 6
    ridge: float = 1e-4
    mixing: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory < 1:
            raise ValueError(f"memory must be at least 1, got {self.memory}")
        if self.ridge < 0 or not self.mixing > 0:
            raise ValueError(f"ridge must be >= 0 and mixing > 0, got ridge={self.ridge}, mixing={self.mixing}")

    @override
    def init(self, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> AndersonMemory:
        return AndersonMemory(z[:, None], g[:, None], (g[:, None] @ g[:, :, None]))

    @override
    def propose(self, memory: AndersonMemory) -> tuple[Float[Tensor, "B D"], AndersonMemory]:
        weights = self._weights(memory.gram)[:, None]
        return (weights @ (memory.z + self.mixing * memory.g))[:, 0], memory

    @override
    def observe(self, memory: AndersonMemory, z: Float[Tensor, "B D"], g: Float[Tensor, "B D"]) -> AndersonMemory:
        """The new point replaces the oldest once the memory is full."""
        keep = slice(max(0, memory.z.shape[1] - self.memory + 1), None)
        gs = torch.cat([memory.g[:, keep], g[:, None]], 1)
        row = g[:, None] @ gs.mT
        gram = torch.cat([memory.gram[:, keep, keep], row[:, :, :-1].mT], 2)
        return AndersonMemory(torch.cat([memory.z[:, keep], z[:, None]], 1), gs, torch.cat([gram, row], 1))

    @override
    def rebase(self, memory: AndersonMemory, g: Float[Tensor, "B D"]) -> AndersonMemory:
        """Differences between the stored g are kept, since they describe f; all are shifted to match the new g here."""
        gs = memory.g + (g - memory.g[:, -1])[:, None]
        return AndersonMemory(memory.z, gs, gs @ gs.mT)

    def _weights(self, gram: Float[Tensor, "B m m"]) -> Float[Tensor, "B m"]:
        size = gram.shape[-1]
        if size == 1:
            return torch.ones_like(gram[:, 0])
        scale = gram.diagonal(dim1=1, dim2=2).amax(1).clamp_min(torch.finfo(gram.dtype).tiny)
        eye = torch.eye(size, dtype=gram.dtype, device=gram.device)
        system = gram / scale[:, None, None] + max(self.ridge, torch.finfo(gram.dtype).eps) * eye
        # solve_ex does not raise: a singular or NaN system must not stop the other samples
        raw = torch.linalg.solve_ex(system, torch.ones_like(gram[:, :, :1]))[0][..., 0]
        return raw / raw.sum(1, keepdim=True)
