"""Gradient policies: how the result of a solve is differentiated, apart from how it was solved.

With z the solver's state (a constant), y = f(z; x) and J = df/dz at z, implicit differentiation of z = f(z; x) gives
dL/dx = (df/dx)^T u with u = J^T u + dL/dy. The policies differ in how they approximate u and in what the head reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from robustdeq.solve.broyden import Broyden
from robustdeq.solve.loop import fixed_point
from robustdeq.solve.solution import Solution
from robustdeq.solve.solver import Map, Solver, row_norms

State = Float[Tensor, "B *latent"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SolvedState:
    """One state of a solve, with what a policy may need to know about the solve."""

    z: State
    step: Int[Tensor, " B"]
    """The solver step that produced each sample's z."""
    solution: Solution
    batch_coupled: bool = False


@dataclass(frozen=True)
class GradientPolicy:
    """Turns a solved state into y, the differentiable state that the head reads: by default f of the constant state.

    Subclasses override `advance`, `connect` or both.
    """

    differentiates_solver: ClassVar[bool] = False
    """Whether the solve itself must run with grad mode on."""
    needs_inverse: ClassVar[bool] = False
    """Whether the solver's inverse estimate at the state is needed."""

    def connect(self, f: Map, state: SolvedState) -> State:
        """y, whose autograd history is this policy's gradient."""
        return self.advance(f, state.z.detach())

    def advance(self, f: Map, z: State) -> State:
        """y as a plain differentiable function of z, for exact gradients of the deployed logits."""
        return f(z)


def unroll(f: Map, y: State, steps: int, damping: float) -> State:
    """`steps` times y <- (1 - damping) y + damping f(y); damping is the weight of f."""
    for _ in range(steps):
        y = torch.lerp(y, f(y).to(y.dtype), damping)  # f may compute in half precision, the state stays in its own
    return y


@dataclass(frozen=True)
class _Series(GradientPolicy):
    """A policy with a number of steps and a damping, the weight of f in each of them."""

    steps: int = 5
    damping: float = 0.5

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must be >= 0, got {self.steps}")
        if not 0 < self.damping <= 1:
            raise ValueError(f"damping is the weight of f and must lie in (0, 1], got {self.damping}")


@dataclass(frozen=True)
class Phantom(_Series):
    """y = f(z), then `steps` damped applications of f; backprop through all steps + 1 of them."""

    @override
    def advance(self, f: Map, z: State) -> State:
        return unroll(f, f(z), self.steps, self.damping)


@dataclass(frozen=True)
class Unrolled(_Series):
    """`steps` damped applications of f from the state itself; backprop through all of them (the paper's Eq. unrolled).

    With no step there is no gradient.
    """

    @override
    def advance(self, f: Map, z: State) -> State:
        return unroll(f, z, self.steps, self.damping)


@dataclass(frozen=True)
class OneStep(GradientPolicy):
    """y = f(z), u = dL/dy: Jacobian-free backpropagation, Phantom with no unrolling."""


@dataclass(frozen=True)
class ThroughSolver(GradientPolicy):
    """y = z, with the exact gradient of the finite iteration: autograd through every solver step.

    Its memory grows with the number of steps; it is the reference for the other policies. A sample that becomes
    non-finite during the solve has a NaN gradient; the other samples of the batch do not.
    """

    differentiates_solver: ClassVar[bool] = True

    @override
    def connect(self, f: Map, state: SolvedState) -> State:
        return state.z

    @override
    def advance(self, f: Map, z: State) -> State:
        return z


@dataclass(frozen=True)
class Implicit(GradientPolicy):
    """y = f(z), u solved from u = J^T u + dL/dy by a fixed-point solver started at 0.

    A solve whose forward pass was batch-coupled has a batch-coupled backward pass too.
    """

    solver: Solver = field(default_factory=lambda: Broyden(max_steps=7))
    tol: float = 1e-3
    on_solution: Callable[[Solution], None] | None = None
    """Called with the backward solve's `Solution`, for diagnostics."""

    @override
    def connect(self, f: Map, state: SolvedState) -> State:
        """f(z) with the adjoint solve attached to its backward pass."""
        solver = replace(self.solver, batch_coupled=self.solver.batch_coupled or state.batch_coupled)

        def adjoint(grad: Tensor, vjp: Map) -> Tensor:
            # The equation is linear in dL/dy and solved at unit scale: with tiny gradients (confident predictions) the
            # small constant in the relative residual would stop the solver too early.
            size = torch.ones_like(grad) if solver.batch_coupled else row_norms(grad)
            unit = grad / size
            solution = fixed_point(lambda u: vjp(u) + unit, torch.zeros_like(grad), solver, tol=self.tol, record=False)
            solution = replace(solution, value=solution.value * size, last=solution.last * size)
            if self.on_solution is not None:
                self.on_solution(solution)
            return solution.value

        return with_adjoint(f, state.z, adjoint)


@dataclass(frozen=True)
class Neumann(_Series):
    """y = f(z); w <- g = dL/dy, `steps` times w <- g + ((1 - damping) I + damping J)^T w, u = damping w."""

    @override
    def connect(self, f: Map, state: SolvedState) -> State:
        """f(z) with the truncated series attached to its backward pass."""

        def adjoint(grad: Tensor, vjp: Map) -> Tensor:
            w = grad
            for _ in range(self.steps):
                w = grad + torch.lerp(w, vjp(w), self.damping)
            return self.damping * w

        return with_adjoint(f, state.z, adjoint)


@dataclass(frozen=True)
class SharedInverse(GradientPolicy):
    """y = f(z), u = -B^T dL/dy with B the forward solver's own inverse estimate at z (SHINE, Ramzi et al. 2022)."""

    needs_inverse: ClassVar[bool] = True

    @override
    def connect(self, f: Map, state: SolvedState) -> State:
        """f(z) with the shared inverse attached to its backward pass."""
        inverse = state.solution.inverse
        if inverse is None:
            raise ValueError(
                "SharedInverse reuses the inverse-Jacobian estimate of the forward solve, and this solver keeps none: "
                "use Broyden, or another gradient policy (Phantom, Implicit, Neumann)"
            )

        rank = state.step - state.solution.inverse_from

        def adjoint(grad: Tensor, vjp: Map) -> Tensor:
            return -inverse.apply_transposed(grad.reshape(len(grad), -1), rank).reshape(grad.shape)

        return with_adjoint(f, state.z, adjoint)


Adjoint = Callable[[Tensor, Map], Tensor]
"""(dL/dy, u -> J^T u) -> u"""


def with_adjoint(f: Map, z: Tensor, adjoint: Adjoint) -> Tensor:
    """Y = f(z) whose incoming gradient is replaced by adjoint(dL/dy, u -> J^T u) before it flows on into f."""
    if not torch.is_grad_enabled():
        return f(z)
    z = z.detach().requires_grad_()
    y = f(z)

    def vjp(u: Tensor) -> Tensor:
        return torch.autograd.grad(y, z, u, retain_graph=True, allow_unused=True, materialize_grads=True)[0]

    result: Tensor = _ReplaceGradient.apply(y, lambda grad: adjoint(grad, vjp))
    return result


class _ReplaceGradient(torch.autograd.Function):
    """The identity, with its incoming gradient mapped."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, mapping: Map) -> Tensor:
        ctx.mapping = mapping
        return y.view_as(y)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.mapping(grad), None
