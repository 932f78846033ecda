"""How the dynamics go on after an intervention: with the solver's history kept, or in segments that restart it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from robustdeq.defences.descent import Descent, InputEntropy
from robustdeq.defences.remembering import Remembering
from robustdeq.defences.switches import Switches
from robustdeq.models import DEQ
from robustdeq.models.predictor import Pass, Purification
from robustdeq.solve import Broyden, Iteration, SegmentBroyden, Solution, Solver


def kept_history(
    model: DEQ,
    x: Tensor,
    *,
    every: int,
    descent: Descent,
    switches: Switches,
    steps: int | None,
    judge_last: bool,
    idle: bool,
) -> Pass:
    """One iteration; an intervention pauses it, and the solver is rebased to f(.; x^).

    Args:
        model: Whose dynamics.
        x: The received images.
        every: Steps between interventions.
        descent: What an intervention does to x^.
        switches: `resolve`: the intervention looks at the proposed z^[t], and the step is then taken with the new x^.
        steps: Solver steps; None for all, with a final readout after them.
        judge_last: As of `fixed_point`.
        idle: Intervene even where nothing follows.
    """
    moving = _Moving(model, x, descent)
    read = steps is None and switches.final_input == "purified"
    steps = steps or model.solver.max_steps
    solver = replace(model.solver, max_steps=steps)
    iteration = Iteration(moving.f, moving.z0, solver, tol=model.tol, judge_last=judge_last)
    for t in range(every, steps + 1, every):
        if switches.resolve:
            iteration.advance(t - 1 - iteration.step)
            moving.intervene(iteration.peek(), since=t)
            iteration.rebase(moving.f)
        else:
            iteration.advance(t - iteration.step)
            if t < steps or idle or read:
                moving.intervene(iteration.z.reshape(iteration.shape), since=t + 1)
            if t < steps:
                iteration.rebase(moving.f)
    return moving.arrive(iteration.advance().solution(), switches)


def restarted_history(
    model: DEQ,
    x: Tensor,
    *,
    every: int,
    descent: Descent,
    switches: Switches,
    steps: int | None,
    judge_last: bool,
    idle: bool,
    watch: Callable[[Iteration], None] | None = None,
) -> Pass:
    """An iteration per segment of `every` steps, started where the one before handed on; arguments as above.

    `watch` is called with the iteration at the end of each segment.
    """
    moving = _Moving(model, x, descent)
    read = steps is None and switches.final_input == "purified"
    steps = steps or model.solver.max_steps
    z, memory = moving.z0, None
    parts: list[Solution] = []
    for end in range(every, steps + every, every):
        length = every - max(0, end - steps)
        follows = end < steps
        iteration = Iteration(
            moving.f,
            z,
            _segment_solver(model.solver, length, memory),
            tol=model.tol,
            judge_last=judge_last or follows or idle,
        )
        if switches.resolve and length == every:
            iteration.advance(length - 1)
            moving.intervene(iteration.peek(), since=end)
            iteration.rebase(moving.f)
        iteration.advance()
        if watch is not None:
            watch(iteration)
        parts.append(iteration.solution())
        memory = iteration.memory
        z = (iteration.value if switches.handed_on == "lowest" else iteration.z).reshape(iteration.shape)
        if not switches.resolve and length == every and (follows or idle or read):
            moving.intervene(z, since=end + 1)
    return moving.arrive(_joined(parts), switches)


class _Moving:
    """x^ and its dynamics along a pass."""

    def __init__(self, model: DEQ, x: Tensor, descent: Descent) -> None:
        self.received, self.z0 = model.begin(x)
        self.f = Remembering(self.received)
        self.entropy, self.descent = InputEntropy(model), descent
        self.x, self.x_hat = x, x
        self.purification = Purification(inputs=[], since=[], inner_entropy=[])

    def intervene(self, z: Tensor, *, since: int) -> None:
        """Move x^ at the state z, and the dynamics with it; the new ones act from z^[since] on."""
        self.x_hat = self.descent(self.entropy, self.f, z, self.x, self.x_hat)
        self.f = self.f.rebind(self.entropy.encoder(self.x_hat))
        self.purification.inputs.append(self.x_hat)
        self.purification.since.append(since)

    def arrive(self, solution: Solution, switches: Switches) -> Pass:
        """The whole pass."""
        purified = switches.final_input == "purified"
        return Pass(
            x=self.x,
            x_read=self.x_hat if purified else self.x,
            f=self.f.inner if purified else self.received,
            solution=solution,
            purification=self.purification,
        )


def _segment_solver(solver: Solver, steps: int, memory: Any) -> Solver:
    """The solver of a segment: Broyden takes factors over, others start afresh."""
    if type(solver) is not Broyden:  # a class derived from it may keep other factors
        return replace(solver, max_steps=steps)
    return SegmentBroyden(
        max_steps=steps,
        criterion=solver.criterion,
        divergence=solver.divergence,
        batch_coupled=solver.batch_coupled,
        previous=memory,
    )


def _joined(parts: list[Solution]) -> Solution:
    """The solution of all segments: states and residuals in a row, the outcome of the last."""
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
