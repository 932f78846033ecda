"""Broyden's method as docs/method.md, section 2 writes it: factors in a list, every product spelt out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Factors = list[tuple[Tensor, Tensor]]


@dataclass
class PlainSolution:
    """The result of the plain solver."""

    states: Tensor
    """(N, B, D): z^[1..N]; a finished sample's last iterate repeats."""
    residuals: Tensor
    """(N, B), relative."""
    value: Tensor
    """(B, D): each sample's lowest-residual iterate."""
    lowest_step: Tensor
    """(B,): the step of `value`, counting from 1."""
    evaluations: int
    """Number of evaluations of f."""


def times(factors: Factors, x: Tensor) -> Tensor:
    """B x, with B = -I + sum u v^T."""
    result = -x
    for u, v in factors:
        result = result + u * (v * x).sum(1, keepdim=True)
    return result


def factor(factors: Factors, dz: Tensor, dg: Tensor) -> tuple[Tensor, Tensor]:
    """Broyden's next (u, v), with v = B^T dz."""
    v = times([(v, u) for u, v in factors], dz)
    u = (dz - times(factors, dg)) / (v * dg).sum(1, keepdim=True)
    return torch.where(torch.isfinite(u), u, 0.0), v


def broyden(f: Callable[[Tensor], Tensor], z0: Tensor, *, max_steps: int = 8, tol: float = 1e-3) -> PlainSolution:
    """N steps of Broyden's method on g(z) = f(z) - z, each sample by its own residual; N + 1 evaluations of f."""
    factors: Factors = []
    z = z0
    g = f(z) - z
    step = g
    active = torch.ones(len(z), 1, dtype=torch.bool, device=z.device)
    states: list[Tensor] = []
    residuals: list[Tensor] = []
    for _ in range(max_steps):
        z_new = torch.where(active, z + step, z)
        g_new = torch.where(active, f(z_new) - z_new, g)
        residual = g_new.norm(dim=1, keepdim=True) / ((g_new + z_new).norm(dim=1, keepdim=True) + 1e-9)
        states.append(z_new)
        residuals.append(residual)
        stop = (residual < tol) | (residual > 1e3 * residuals[0]) | ~torch.isfinite(residual)
        active = active & ~stop
        factors.append(factor(factors, z_new - z, g_new - g))
        z, g = z_new, g_new
        step = -times(factors, g)
    trace = torch.stack(residuals)[..., 0]
    lowest = torch.where(torch.isfinite(trace), trace, torch.inf).argmin(0)
    stacked = torch.stack(states)
    return PlainSolution(
        states=stacked,
        residuals=trace,
        value=stacked[lowest, torch.arange(len(z0), device=z0.device)],
        lowest_step=lowest + 1,
        evaluations=max_steps + 1,
    )
