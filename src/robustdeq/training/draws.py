"""The randomness of a training step, as a pure function of where the training is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """What is drawn in one step: each draw has a name and depends on (seed, step, name) alone.

    So a resumed training draws what the uninterrupted one would have, no generator state is stored, and another
    implementation that asks for the same names gets the same numbers in whatever order it asks. Draws per image are
    made for the joint batch of all ranks, of which each rank takes its rows: the number of processes does not matter,
    except to dropout masks, which every rank draws for itself.
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
        """This rank's rows of draw(joint batch, generator), which looks at shape and dtype only and runs on the CPU."""
        joint = torch.empty(len(like) * self.world_size, *like.shape[1:], dtype=like.dtype)
        rows = draw(joint, self.generator(name))
        return rows[self.rank * len(like) : (self.rank + 1) * len(like)].to(like.device)

    def normal(self, name: str, like: Tensor) -> Tensor:
        """Standard normal numbers."""
        return self.per_image(name, like, lambda x, g: torch.randn(x.shape, dtype=x.dtype, generator=g))

    def integer(self, name: str, low: int, high: int) -> int:
        """Uniform in {low..high}; a whole joint batch shares it."""
        return int(torch.randint(low, high + 1, (), generator=self.generator(name)))

    def chance(self, name: str, probability: float) -> bool:
        """True with this probability."""
        return bool(torch.rand((), dtype=torch.float64, generator=self.generator(name)) < probability)
