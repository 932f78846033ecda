"""Problems with known answers.

A problem is a map z -> f(z) whose fields are tensors with a batch axis: `problem[[2, 0]]` is the problem of those
samples, in that order. `u` is what drives it, so `driven_by(x)` makes it a function of x.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import prod

import torch
from torch import Tensor


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True, eq=False)
class Problem:
    """One map per sample."""

    u: Tensor

    def __len__(self) -> int:
        return len(self.u)

    def __getitem__(self, index):
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @property
    def z0(self) -> Tensor:
        return torch.zeros_like(self.u)

    def driven_by(self, u: Tensor):
        return replace(self, u=u)

    def __call__(self, z: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Linear(Problem):
    """z -> A z + u with z* = (I - A)^-1 u; u has any latent shape, A acts on the flat state."""

    A: Tensor

    @classmethod
    def random(cls, batch, latent, radius, *, dtype=torch.float64, seed=0, symmetric=False) -> Linear:
        """A of the given spectral radius; a symmetric A has that norm too, so every plain step contracts."""
        dim = prod(latent)
        A = torch.randn(batch, dim, dim, dtype=torch.float64, generator=generator(seed))
        A = A + A.mT if symmetric else A
        A = radius * A / torch.linalg.eigvals(A).abs().amax(1)[:, None, None]
        u = torch.randn(batch, *latent, dtype=torch.float64, generator=generator(seed + 1))
        return cls(u.to(dtype), A.to(dtype))

    def __call__(self, z):
        return (self.A @ z.reshape(len(z), -1, 1)).reshape(z.shape) + self.u

    @property
    def fixed_point(self) -> Tensor:
        eye = torch.eye(self.A.shape[1], dtype=self.A.dtype)
        return torch.linalg.solve(eye - self.A, self.u.reshape(len(self), -1)).reshape(self.u.shape)

    def gradient(self, c: Tensor) -> Tensor:
        """d <c, z*> / du."""
        eye = torch.eye(self.A.shape[1], dtype=self.A.dtype)
        return torch.linalg.solve(eye - self.A.mT, c.reshape(len(c), -1)).reshape(c.shape)


@dataclass(frozen=True, eq=False)
class Cosine(Problem):
    """z -> cos(z), from u; every component goes to the same number."""

    FIXED_POINT = 0.7390851332151607

    @property
    def z0(self):
        return self.u

    def __call__(self, z):
        return torch.cos(z)


@dataclass(frozen=True, eq=False)
class TanhCell(Problem):
    """z -> tanh(W z + u), the smallest DEQ cell; one W per sample."""

    W: Tensor

    @classmethod
    def random(cls, batch, dim, gain, *, dtype=torch.float64, seed=0) -> TanhCell:
        """W of norm `gain`: below 1 the cell is a contraction."""
        W = torch.randn(batch, dim, dim, dtype=torch.float64, generator=generator(seed))
        W = gain * W / torch.linalg.matrix_norm(W, 2)[:, None, None]
        u = torch.randn(batch, dim, dtype=torch.float64, generator=generator(seed + 1))
        return cls(u.to(dtype), W.to(dtype))

    def __call__(self, z):
        return torch.tanh((self.W @ z[..., None])[..., 0] + self.u)

    def jacobian(self, z: Tensor) -> Tensor:
        """df/dz, (B, D, D)."""
        return (1 - self(z) ** 2)[..., None] * self.W

    def gradient(self, z: Tensor, c: Tensor) -> Tensor:
        """d <c, z*> / du at the fixed point z = z*."""
        eye = torch.eye(z.shape[1], dtype=z.dtype)
        return (1 - z**2) * torch.linalg.solve(eye - self.jacobian(z).mT, c)


@dataclass(frozen=True, eq=False)
class Trap(Linear):
    """A linear map whose value is multiplied by `inside` within `reach` of its fixed point.

    Whatever the solver, it walks into the trap. inside = nan breaks the sample there; inside = 1e-4 makes its relative
    residual jump to 1e4, a divergence. reach = 0 is no trap.
    """

    reach: Tensor
    inside: Tensor

    def __call__(self, z):
        trapped = torch.linalg.vector_norm((z - self.fixed_point).detach(), dim=1) < self.reach
        return torch.where(trapped, self.inside, 1.0)[:, None] * super().__call__(z)


HEALTHY, DIVERGING, BREAKING, NAN, QUICK = range(5)


def troubled(dim: int = 5) -> Trap:
    """Five samples: healthy but slow, diverging after a good start, NaN after a good start, NaN at once, quick."""
    A = Linear.random(5, (dim,), 0.9, symmetric=True).A
    A[[DIVERGING, BREAKING, QUICK]] = 1e-4 * torch.eye(dim, dtype=A.dtype)
    u = torch.randn(5, dim, dtype=A.dtype, generator=generator(7)) + 3
    u[NAN, 1] = torch.nan
    reach = torch.zeros(5, dtype=A.dtype)
    reach[[DIVERGING, BREAKING]] = 1e-5
    inside = torch.tensor([1.0, 1e-4, torch.nan, 1.0, 1.0], dtype=A.dtype)
    return Trap(u, A, reach, inside)
