"""The randomness of a training step, as a pure function of the seed, the step and a name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """The random draws of one step: every draw has a name and depends on (seed, step, name) alone.

    A resumed training therefore draws what an uninterrupted one would have drawn, without storing generator states, and
    another implementation that asks for the same names gets the same numbers in any order. Draws per image are made for
    the joint batch of all ranks, and every rank takes its rows: the number of processes does not matter, except for
    dropout masks, which every rank draws for itself.
    """

    seed: int
    step: int
    rank: int = 0
    world_size: int = 1

    def generator(self, name: str) -> torch.Generator:
        """A generator for this name, the same on every rank."""
        key = f"{self.seed}/{self.step}/{name}"
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") >> 1)

    def own_generator(self, name: str) -> torch.Generator:
        """A generator for this name and rank."""
        return self.generator(f"{name}/rank {self.rank}")

    def per_image(self, name: str, like: Tensor, draw: Callable[[Tensor, torch.Generator], Tensor]) -> Tensor:
        """This rank's rows of draw(joint batch, generator); `draw` may use shape and dtype only, on the CPU."""
        joint = torch.empty(len(like) * self.world_size, *like.shape[1:], dtype=like.dtype)
        rows = draw(joint, self.generator(name))
        return rows[self.rank * len(like) : (self.rank + 1) * len(like)].to(like.device)

    def normal(self, name: str, like: Tensor) -> Tensor:
        """Standard normal numbers."""
        return self.per_image(name, like, lambda x, g: torch.randn(x.shape, dtype=x.dtype, generator=g))

    def integer(self, name: str, low: int, high: int) -> int:
        """Uniform in {low..high}, one number for the joint batch of all ranks."""
        return int(torch.randint(low, high + 1, (), generator=self.generator(name)))

    def chance(self, name: str, probability: float) -> bool:
        """True with this probability."""
        return bool(torch.rand((), dtype=torch.float64, generator=self.generator(name)) < probability)
