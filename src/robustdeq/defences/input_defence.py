"""The base class of defences that change the input between solver steps."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.defences import flows
from robustdeq.defences.switches import VARIANTS, Switches
from robustdeq.models import BoundDynamics
from robustdeq.models.modes import attacking
from robustdeq.models.predictor import Defence, DynamicPredictor, Pass


class InputDefence(Defence):
    """A defence that changes its input while the solver runs.

    After every `every` solver steps the solver pauses, `move` returns the new input x^, and the dynamics continue with
    it; x^ is never reset during a pass. Subclasses implement `move` and nothing else.

    Args:
        predictor: A DEQ, or a defence of its readout such as `EarlyState`.
        every: Number of solver steps between interventions.
    """

    defended = True
    switches: Switches = VARIANTS["paper"]
    """How the dynamics continue after an intervention."""

    def __init__(self, predictor: DynamicPredictor, *, every: int = 2) -> None:
        super().__init__(predictor)
        if predictor.defended:
            raise ValueError("the predictor defends its input already; wrap the undefended model")
        self.every = every

    @abstractmethod
    def move(self, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> Tensor:
        """The new input x^, the shape of x; called without autograd.

        Args:
            f: The dynamics with the injection of the current x^.
            z: The state that the intervention looks at.
            x: The received images.
            x_hat: The current x^.
        """

    def move_and_measure(self, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> tuple[Tensor, Tensor | None]:
        """`move`, and what `Trajectory.inner_entropy` shows of it, (R + 1, B), if anything."""
        return self.move(f, z, x, x_hat), None

    def move_differentiably(
        self, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor, smoothing: float | None
    ) -> Tensor:
        """`move` as a differentiable function; unless overridden, what it adds to x counts as a constant."""
        with torch.no_grad():
            moved = self.move(f, z.detach(), x.detach(), x_hat.detach())
        return x + (moved - x).detach()

    def check(self) -> None:
        """Raises an error for settings that cannot work; the model's solver may be replaced after construction."""
        if self.every < 1:
            raise ValueError(f"every must be >= 1, got {self.every}")
        if self.switches.history == "restarted" and self.num_states % self.every:
            raise ValueError(
                f"with history='restarted' (variant 'released') every must divide the solver's {self.num_states} "
                f"steps, got every={self.every}"
            )

    @override
    def undefended(self) -> DynamicPredictor:
        return self.predictor

    @property
    def interventions(self) -> list[int]:
        """The solver steps after which x^ moves."""
        return list(range(self.every, self.num_states + 1, self.every))

    @property
    @override
    def watched(self) -> list[int]:
        """The states at which the defence intervenes; all states if it never does."""
        return self.interventions or self.base.watched

    @override
    def walk(  # type: ignore[override]  # `Defence.walk` passes all options on
        self,
        x: Tensor,
        *,
        steps: int | None = None,
        judge_last: bool = True,
        measure: bool = False,
        exact: bool = False,
        smoothing: float | None = None,
    ) -> Pass:
        def move(f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> tuple[Tensor, Tensor | None]:
            if exact:
                return self.move_differentiably(f, z, x, x_hat, smoothing), None
            return self.move_and_measure(f, z, x, x_hat) if measure else (self.move(f, z, x, x_hat), None)

        # `move` may differentiate, which is impossible with tensors that were made in inference mode
        with attacking(self), torch.inference_mode(False), torch.set_grad_enabled(exact):
            x = x.clone() if x.is_inference() else x
            return self.run_flow(move, x, steps=steps, judge_last=judge_last, idle=measure)

    def run_flow(
        self, move: flows.Move, x: Tensor, *, steps: int | None = None, judge_last: bool = True, idle: bool = False
    ) -> Pass:
        """Runs the dynamics with interventions; `idle` as for the functions in `flows`."""
        self.check()
        flow = flows.kept_history if self.switches.history == "kept" else flows.restarted_history
        return flow(self, move, x, steps=steps, judge_last=judge_last, idle=idle)
