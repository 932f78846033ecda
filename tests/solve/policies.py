"""A solve and a policy, put together as a DEQ does it."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from robustdeq import Broyden, fixed_point
from robustdeq.solve import SolvedState


def solved(f, z0: Tensor, solver, tol: float) -> SolvedState:
    solution = fixed_point(f, z0, solver, tol=tol)
    return SolvedState(z=solution.value, step=solution.lowest_step, solution=solution)


def equilibrium(policy, problem, u: Tensor, *, solver=None, tol=1e-13) -> Tensor:
    """y for a problem driven by u."""
    f = problem.driven_by(u)
    with nullcontext() if policy.differentiates_solver else torch.no_grad():
        state = solved(f, problem.z0, Broyden(max_steps=24) if solver is None else solver, tol)
    return policy.connect(f, state)


def gradient(policy, problem, c: Tensor, **options) -> Tensor:
    """d <c, y> / du."""
    u = problem.u.clone().requires_grad_()
    (result,) = torch.autograd.grad((c * equilibrium(policy, problem, u, **options)).nansum(), u)
    return result


def finite_differences(value, u: Tensor, step: float = 1e-5) -> Tensor:
    """The gradient of value(u), a scalar, by central differences."""
    result = torch.zeros_like(u)
    for i in range(u.numel()):
        nudge = torch.zeros(u.numel(), dtype=u.dtype)
        nudge[i] = step
        nudge = nudge.reshape(u.shape)
        result.view(-1)[i] = (value(u + nudge) - value(u - nudge)) / (2 * step)
    return result
