"""The loop that runs every solver: it evaluates f, stops, freezes and isolates samples, and records states."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from robustdeq.solve.solution import Solution, Status
from robustdeq.solve.solver import Map, Solver


class Iteration:
    """A fixed-point iteration that can be paused, looked at, and continued with another f.

        it = Iteration(f, z0, Broyden(max_steps=8), tol=1e-3)
        it.advance(2)           # z^[1], z^[2]
        it.peek()               # what z^[3] would be
        it.rebase(another_f)    # the dynamics change; the solver keeps its history
        it.advance()            # the remaining steps
        it.solution()

    Each sample is its own solve. A sample that converges, diverges or becomes non-finite freezes at that iterate, and
    no row ever affects another (f must not mix rows either). With grad mode on, the iteration is differentiable, which
    `ThroughSolver` uses.
    """

    def __init__(
        self, f: Map, z0: Tensor, solver: Solver, *, tol: float = 1e-3, record: bool = True, judge_last: bool = True
    ) -> None:
        _check_start(z0, tol)
        self._autocast = torch.is_autocast_enabled(z0.device.type)
        self.f = f
        self.solver = solver
        self.tol = tol
        self.record = record
        self.judge_last = judge_last
        self.shape = z0.shape
        self.evaluations = 0
        self.step = 0
        self.z = z0.reshape(len(z0), -1)
        """The current iterate z^[step], flat."""
        self.fz = self._evaluate(self.z)
        self.g = self.fz - self.z
        with _autocast(z0, enabled=False):
            self.memory: Any = solver.init(self.z, self.g)

        batch = len(z0)
        self.status = torch.full((batch,), Status.STEP_LIMIT, dtype=torch.int64, device=z0.device)
        self.steps = torch.zeros_like(self.status)
        self.lowest_step = torch.zeros_like(self.status)
        self.value = self.z
        """The lowest-residual iterate so far, flat."""
        self.residual = torch.full((batch,), torch.inf, dtype=z0.dtype, device=z0.device)
        self._first_residual = self.residual
        self.states: list[Float[Tensor, "B D"]] = []
        self.residuals: list[Float[Tensor, " B"]] = []
        self.residual_norms: list[Float[Tensor, " B"]] = []
        self._active = torch.ones(batch, dtype=torch.bool, device=z0.device)
        self._all_active, self._any_active = True, True

    @property
    def done(self) -> bool:
        """Whether all steps have been taken."""
        return self.step >= self.solver.max_steps

    def advance(self, steps: int | None = None) -> Iteration:
        """Take `steps` steps, or all that remain."""
        remaining = self.solver.max_steps - self.step
        for _ in range(remaining if steps is None else min(steps, remaining)):
            with _autocast(self.z, enabled=False):
                self._advance_one()
        return self

    def peek(self) -> Tensor:
        """The next iterate, without taking the step."""
        if not self._any_active:
            return self.z.reshape(self.shape)
        with _autocast(self.z, enabled=False):
            z, _ = self.solver.propose(self.memory)
        if not self._all_active:
            z = torch.where(self._active[:, None], z, self.z)
        return z.reshape(self.shape)

    def rebase(self, f: Map) -> Iteration:
        """Continues with another f from the current iterate; the solver keeps what it has learnt about f.

        A converged sample becomes active again if its residual under the new f is too large. Residuals of different f
        are not comparable, so from here on the lowest residual is sought among the current iterate and later ones.
        """
        self.f = f
        self.fz = self._evaluate(self.z)
        self.g = self.fz - self.z
        with _autocast(self.z, enabled=False):
            self.memory = self.solver.rebase(self.memory, self.g)
        residual, _, finite = self._measure()
        again = (self.status == Status.CONVERGED) & finite & (residual >= self.tol)
        self.status = torch.where(again, int(Status.STEP_LIMIT), self.status)
        self._active = self._active | again
        self._all_active, self._any_active = torch.stack([self._active.all(), self._active.any()]).tolist()
        self.residual = torch.where(self._active, residual, self.residual)
        self._first_residual = torch.where(self._active, residual, self._first_residual)
        self.lowest_step = torch.where(self._active, self.step, self.lowest_step)
        self.value = torch.where(self._active[:, None], self.z, self.value)
        return self

    def solution(self) -> Solution:
        """The results so far."""
        if self.step == 0:
            raise RuntimeError("no step has been taken yet: call advance() before solution()")
        return Solution(
            value=self.value.reshape(self.shape),
            last=self.z.reshape(self.shape),
            lowest_step=self.lowest_step,
            steps=self.steps,
            status=self.status,
            residual=self.residual,
            residuals=torch.stack(self.residuals),
            residual_norms=torch.stack(self.residual_norms),
            evaluations=self.evaluations,
            trajectory=torch.stack(self.states).reshape(-1, *self.shape) if self.record else None,
            compute_inverse=partial(self.solver.inverse, self.memory),
        )

    def _evaluate(self, z: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        self.evaluations += 1
        version = None if z.is_inference() else z._version
        with _autocast(z, enabled=self._autocast):
            fz = self.f(z.reshape(self.shape))
        if version is not None and z._version != version:
            raise ValueError("f changes the state it is given in place; it must return a new tensor")
        if self._autocast:  # f computes in the precision of autocast, the state keeps its own
            fz = fz.to(z.dtype)
        if fz.shape != self.shape or fz.dtype != z.dtype:
            raise ValueError(
                f"f must return what it is given: got shape {tuple(fz.shape)}, {fz.dtype} "
                f"for a state of shape {tuple(self.shape)}, {z.dtype}"
            )
        return fz.reshape(z.shape)

    def _advance_one(self) -> None:
        self.step += 1
        if not self._any_active:  # every sample is frozen and repeats
            if self.record:
                self.states.append(self.states[-1])
            self.residuals.append(self.residuals[-1])
            self.residual_norms.append(self.residual_norms[-1])
            # In a batch with active samples the solver would observe the repeated point. It must do so here too: after
            # a rebase a sample would otherwise depend on its batch.
            _, memory = self.solver.propose(self.memory)
            self.memory = self.solver.observe(memory, self.z, self.g)
            return
        z, memory = self.solver.propose(self.memory)
        if not self._all_active:
            z = torch.where(self._active[:, None], z, self.z)
        if self.done and not self.judge_last:
            self._take_unjudged(z)
            return
        fz = self._evaluate(z)
        if not self._all_active:
            fz = torch.where(self._active[:, None], fz, self.fz)
        g = fz - z
        self.memory = self.solver.observe(memory, z, g)
        self.z, self.fz, self.g = z, fz, g
        if self.record:
            self.states.append(z)
        self._judge()

    def _take_unjudged(self, z: Float[Tensor, "B D"]) -> None:
        """Takes the last iterate without evaluating f there, so that its residual is unknown."""
        active = self._active
        if self.step == 1:
            self.value, self.lowest_step = z, torch.ones_like(self.lowest_step)
        self.z = z
        if self.record:
            self.states.append(z)
        unknown = torch.full_like(self.residual, torch.nan)
        for trace in (self.residuals, self.residual_norms):
            trace.append(torch.where(active, unknown, trace[-1]) if trace else unknown)
        self.steps = torch.where(active, self.step, self.steps)

    @torch.no_grad()
    def _measure(self) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Bool[Tensor, " B"]]:
        """The residual of the solver's criterion, ||g||, and which rows are finite."""
        norm = torch.linalg.vector_norm(self.g, dim=1)
        scale = torch.linalg.vector_norm(self.fz, dim=1)
        finite = torch.isfinite(norm) & torch.isfinite(scale)
        if self.solver.batch_coupled:  # over the finite rows only: a non-finite sample must not hide the others
            norm = torch.linalg.vector_norm(torch.where(finite, norm, 0.0)).expand_as(norm)
            scale = torch.linalg.vector_norm(torch.where(finite, scale, 0.0)).expand_as(scale)
        residual = norm if self.solver.criterion == "absolute" else norm / (scale + 1e-9)
        return torch.where(finite, residual, torch.inf), torch.where(finite, norm, torch.inf), finite

    def _judge(self) -> None:
        """Update statuses and the lowest-residual iterate with the iterate just reached."""
        residual, norm, finite = self._measure()
        active = self._active
        if not self._all_active:
            residual = torch.where(active, residual, self.residuals[-1])
            norm = torch.where(active, norm, self.residual_norms[-1])
        self.residuals.append(residual)
        self.residual_norms.append(norm)
        self.steps = torch.where(active, self.step, self.steps)

        better = active & (residual < self.residual)
        if self.step == 1:  # a row that is never finite has its first iterate as its result
            better = torch.ones_like(better)
            self._first_residual = residual
        converged = active & (residual < self.tol)
        diverged = active & (residual > self.solver.divergence * self._first_residual)
        broken = active & ~finite
        self.status = torch.where(converged, int(Status.CONVERGED), self.status)
        self.status = torch.where(diverged, int(Status.DIVERGED), self.status)
        self.status = torch.where(broken, int(Status.NON_FINITE), self.status)
        self._active = active & ~(converged | diverged | broken)

        all_better, self._all_active, self._any_active = torch.stack(
            [better.all(), self._active.all(), self._active.any()]
        ).tolist()  # the only synchronisation of a step
        self.residual = torch.where(better, residual, self.residual)
        self.lowest_step = torch.where(better, self.step, self.lowest_step)
        self.value = self.z if all_better else torch.where(better[:, None], self.z, self.value)


def fixed_point(
    f: Map, z0: Tensor, solver: Solver, *, tol: float = 1e-3, record: bool = True, judge_last: bool = True
) -> Solution:
    """Solve f(z) = z for every sample of a batch.

    Args:
        f: The map z -> f(z), which keeps the shape; rows are samples, and f must not mix them.
        z0: The initial state, batch first, with any latent shape, floating point, on any device.
        solver: `Broyden`, `Anderson` or `Picard`; its `max_steps` is N.
        tol: Residual below which a sample counts as converged and freezes.
        record: Keep the trajectory (N states in memory).
        judge_last: Evaluate f at the last iterate too. If not, N steps cost N evaluations, the last residual is NaN,
            and the last iterate is returned as `last` but is not a candidate for `value`.
    """
    return Iteration(f, z0, solver, tol=tol, record=record, judge_last=judge_last).advance().solution()


def _autocast(z: Tensor, *, enabled: bool) -> AbstractContextManager[Any]:
    """A context in which autocast is on or off; a null context if that is so already."""
    kind = z.device.type
    return nullcontext() if torch.is_autocast_enabled(kind) == enabled else torch.autocast(kind, enabled=enabled)


def _check_start(z0: Tensor, tol: float) -> None:
    if z0.ndim == 0 or z0.numel() == 0:
        raise ValueError(f"z0 must have a batch axis with at least one sample, got shape {tuple(z0.shape)}")
    if not z0.is_floating_point():
        raise TypeError(f"z0 must be floating point, got {z0.dtype}")
    if z0.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(
            f"z0 is {z0.dtype}, too coarse for a fixed point: keep the state in float32 and let f compute in half "
            "precision under torch.autocast"
        )
    if not tol >= 0:
        raise ValueError(f"tol must be >= 0, got {tol}")
