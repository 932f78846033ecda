"""How the dynamics continue after an intervention: with the solver's history kept, or in segments that restart it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.defences.intervention import Intervention
from robustdeq.defences.switches import Switches
from robustdeq.models import DEQ, BoundDynamics
from robustdeq.models.predictor import Pass, Purification
from robustdeq.solve import Broyden, Iteration, SegmentBroyden, Solution, Solver

if TYPE_CHECKING:
    from robustdeq.defences.input_defence import InputDefence

Move = Callable[[Intervention], tuple[Tensor, Tensor | None]]
"""An intervention -> the new x^, and a measurement (R1, B) for `Purification.inner_entropy` or None."""


def kept_history(
    defence: InputDefence, move: Move, x: Tensor, *, steps: int | None, judge_last: bool, idle: bool
) -> Pass:
    """Runs one iteration, which every intervention pauses; the solver is then rebased to f(.; x^).

    With `defence.switches.resolve`, an intervention looks at the proposed z^[t], and the step is taken with the new x^.

    Args:
        defence: The defence, with its settings.
        move: The intervention.
        x: The received images.
        steps: Number of solver steps; None: all of them, with a final readout to follow.
        judge_last: As for `robustdeq.fixed_point`.
        idle: Intervene after the last step too, where the new x^ has no effect on the states.
    """
    model, switches = defence.base, defence.switches
    moving = _Moving(model, x, move)
    read = steps is None and switches.final_input == "purified"
    steps = steps or model.solver.max_steps
    solver = replace(model.solver, max_steps=steps)
    iteration = Iteration(moving.f, moving.z0, solver, tol=model.tol, judge_last=judge_last)
    for t in (step for step in defence.interventions if step <= steps):
        if switches.resolve:
            iteration.advance(t - 1 - iteration.step)
            moving.intervene(iteration.peek(), t, since=t)
            iteration.rebase(moving.f)
        else:
            iteration.advance(t - iteration.step)
            if t < steps or idle or read:
                moving.intervene(iteration.z.reshape(iteration.shape), t, since=t + 1)
            if t < steps:
                iteration.rebase(moving.f)
    return moving.arrive(iteration.advance().solution(), switches)


def restarted_history(
    defence: InputDefence, move: Move, x: Tensor, *, steps: int | None, judge_last: bool, idle: bool
) -> Pass:
    """Runs one iteration per segment of `every` steps, each from the state that the previous one hands on.

    The arguments are those of `kept_history`.
    """
    model, switches, every = defence.base, defence.switches, defence.every
    moving = _Moving(model, x, move)
    read = steps is None and switches.final_input == "purified"
    steps = steps or model.solver.max_steps
    z, memory = moving.z0, None
    parts: list[Solution] = []
    for end in range(every, steps + every, every):
        length = every - max(0, end - steps)
        follows = end < steps
        solver = _segment_solver(model.solver, length, memory)
        iteration = Iteration(moving.f, z, solver, tol=model.tol, judge_last=judge_last or follows or idle)
        if switches.resolve and length == every:
            iteration.advance(length - 1)
            moving.intervene(iteration.peek(), end, since=end)
            iteration.rebase(moving.f)
        iteration.advance()
        parts.append(iteration.solution())
        memory = iteration.memory
        z = (iteration.value if switches.handed_on == "lowest" else iteration.z).reshape(iteration.shape)
        if not switches.resolve and length == every and (follows or idle or read):
            moving.intervene(z, end, since=end + 1)
    return moving.arrive(_joined(parts), switches)


class _Moving:
    """The input x^ and its dynamics during a pass."""

    def __init__(self, model: DEQ, x: Tensor, move: Move) -> None:
        self.received, self.z0 = model.begin(x)
        self.f = Remembering(self.received)
        self.model, self.move = model, move
        self.encoder = model.inference_parts()[0]
        self.x, self.x_hat = x, x
        self.purification = Purification(inputs=[], since=[], inner_entropy=[])

    def intervene(self, z: Tensor, step: int, *, since: int) -> None:
        """Moves x^ at the state z of this step; the new dynamics act from z^[since] on."""
        self.x_hat, measured = self.move(
            Intervention(model=self.model, f=self.f, step=step, state=z, received=self.x, image=self.x_hat)
        )
        self.f = self.f.rebind(self.encoder(self.x_hat))
        self.purification.inputs.append(self.x_hat)
        self.purification.since.append(since)
        if measured is not None:
            self.purification.inner_entropy.append(measured)

    def arrive(self, solution: Solution, switches: Switches) -> Pass:
        """The finished pass."""
        purified = switches.final_input == "purified"
        return Pass(
            x=self.x,
            x_read=self.x_hat if purified else self.x,
            f=self.f.inner if purified else self.received,
            solution=solution,
            purification=self.purification,
        )


def _segment_solver(solver: Solver, steps: int, memory: Any) -> Solver:
    """The solver of a segment: Broyden takes over the factors of the segment before, others start from scratch."""
    if type(solver) is not Broyden:  # subclasses may keep other factors
        return replace(solver, max_steps=steps)
    options = {f.name: getattr(solver, f.name) for f in fields(solver)}
    return SegmentBroyden(**{**options, "max_steps": steps}, previous=memory)


def _joined(parts: list[Solution]) -> Solution:
    """The solution of all segments: their states and residuals concatenated, and the outcome of the last."""
    last, before = parts[-1], sum(len(part.residuals) for part in parts[:-1])
    trajectories = [part.trajectory for part in parts if part.trajectory is not None]
    return replace(
        last,
        trajectory=torch.cat(trajectories),
        residuals=torch.cat([part.residuals for part in parts]),
        residual_norms=torch.cat([part.residual_norms for part in parts]),
        steps=before + last.steps,
        lowest_step=before + last.lowest_step,
        inverse_from=before,
        evaluations=sum(part.evaluations for part in parts),
    )


class Remembering(BoundDynamics):
    """f(.; u) that keeps `prepare(z)` of its latest two states: the start of a step, and the one of an intervention."""

    def __init__(self, inner: BoundDynamics, prepared: list[tuple[Tensor, bool, Any]] | None = None) -> None:
        self.inner = inner
        self.u = inner.u
        self._prepared: list[tuple[Tensor, bool, Any]] = [] if prepared is None else prepared

    @override
    def __call__(self, z: Tensor) -> Tensor:
        return self.inner.inject(self.prepare(z), self.u)

    @override
    def prepare(self, z: Tensor) -> Any:
        grad = torch.is_grad_enabled()  # what was prepared without a graph must not be used where one is needed
        for known, known_grad, h in self._prepared:
            if known.data_ptr() == z.data_ptr() and known.shape == z.shape and known_grad == grad:
                return h
        h = self.inner.prepare(z)
        self._prepared.append((z, grad, h))  # holds z, so that its memory is not reused
        del self._prepared[:-2]
        return h

    @override
    def inject(self, h: Any, u: Any) -> Tensor:
        return self.inner.inject(h, u)

    @override
    def inject_unpacked(self, h: Any, u: Any) -> Any:
        return self.inner.inject_unpacked(h, u)

    @override
    def rebind(self, u: Any) -> Remembering:
        return Remembering(self.inner.rebind(u), self._prepared)

    @override
    def unpack(self, z: Tensor) -> Any:
        return self.inner.unpack(z)
