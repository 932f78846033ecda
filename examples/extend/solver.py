"""A solver of your own: plain iteration with momentum, run by the same loop as every other solver."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from my_model import digits, trained
from torch import Tensor

import robustdeq as rd


class Memory(NamedTuple):
    """What the solver knows between two steps; every tensor has one row per sample."""

    z: Tensor
    g: Tensor
    velocity: Tensor


@dataclass(frozen=True, kw_only=True)
class HeavyBall(rd.Solver):
    """velocity <- momentum * velocity + g(z), z <- z + velocity, where g(z) = f(z) - z."""

    momentum: float = 0.3

    def init(self, z: Tensor, g: Tensor) -> Memory:
        """The memory before the first step."""
        return Memory(z, g, torch.zeros_like(z))

    def propose(self, memory: Memory) -> tuple[Tensor, Memory]:
        """The next iterate; the loop evaluates f there."""
        velocity = self.momentum * memory.velocity + memory.g
        return memory.z + velocity, memory._replace(velocity=velocity)

    def observe(self, memory: Memory, z: Tensor, g: Tensor) -> Memory:
        """The memory after f has been evaluated at z."""
        return Memory(z, g, memory.velocity)

    def rebase(self, memory: Memory, g: Tensor) -> Memory:
        """The memory after a defence has changed f: the same z, the new g."""
        return memory._replace(g=g)


def main() -> None:
    """Solve one problem with four solvers, then put the new one into a model."""
    a = torch.linspace(0.1, 0.9, 16, dtype=torch.float64)[:, None] * torch.ones(50)
    for make in (HeavyBall, rd.Picard, rd.Anderson, rd.Broyden):
        solver = make(max_steps=40)
        solution = rd.fixed_point(lambda z: a * torch.cos(z), torch.zeros_like(a), solver, tol=1e-6)
        print(f"{type(solver).__name__:9} {solution.summary()}")
    model, (x, y) = trained(), digits(50)
    model.solver = HeavyBall(max_steps=8)
    print(f"as the solver of a DEQ: {(model(x).argmax(1) == y).sum()} of {len(y)} digits right")


if __name__ == "__main__":
    main()
