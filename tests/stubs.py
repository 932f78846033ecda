"""Stand-ins that test the loop without numerics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustdeq import Solver


@dataclass(frozen=True, kw_only=True)
class Scripted(Solver):
    """Proposes the rows of `script`, (N, B, D), whatever f says; its memory is the number of steps observed."""

    script: Any = None

    def init(self, z, g):
        return 0

    def propose(self, memory):
        return self.script[memory], memory

    def observe(self, memory, z, g):
        return memory + 1

    def rebase(self, memory, g):
        return memory


def own_size(z: Tensor) -> Tensor:
    """f(z) = z + |z|: with criterion "absolute" a state's residual is its norm, so a script spells the residuals."""
    return z + z.abs()


class Counting:
    """f, counting its calls."""

    def __init__(self, f) -> None:
        self.f = f
        self.calls = 0

    def __call__(self, z: Tensor) -> Tensor:
        self.calls += 1
        return self.f(z)


def column(*residuals: float) -> Tensor:
    """One sample's script, (N, 1, 1)."""
    return torch.tensor(residuals, dtype=torch.float64)[:, None, None]
