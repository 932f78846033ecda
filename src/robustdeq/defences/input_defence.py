"""The base class of defences that change the input between solver steps."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.defences import flows
from robustdeq.defences.intervention import Intervention
from robustdeq.defences.switches import VARIANTS, Switches
from robustdeq.models.modes import attacking
from robustdeq.models.predictor import Defence, DynamicPredictor, Pass


class InputDefence(Defence):
    """A defence that changes its input while the solver runs.

    After every `every` solver steps the solver pauses, `move` returns the new images x^, and the dynamics continue with
    them; x^ is never reset during a pass. Subclasses implement `move` and nothing else.

    Around another input defence, it moves the images after that one has moved them, each at its own steps.

    Args:
        predictor: A DEQ, or a defence around one.
        every: Number of solver steps between interventions.
    """

    defended = True
    switches: Switches = VARIANTS["paper"]
    """How the dynamics continue after an intervention."""

    def __init__(self, predictor: DynamicPredictor, *, every: int = 2) -> None:
        super().__init__(predictor)
        if any(type(layer) is type(self) for layer in _layers(predictor)):
            raise ValueError("the predictor defends its input already; wrap the undefended model")
        self.every = every

    @abstractmethod
    def move(self, now: Intervention) -> Tensor:
        """The new images, the shape of `now.image`.

        Called without autograd, except by exact oracles: these differentiate whatever it computes. `now.gradient` works
        in both cases. If nothing that it returns depends on its tensors by autograd, what it adds to the received
        images counts as a constant.
        """

    def move_and_measure(self, now: Intervention) -> tuple[Tensor, Tensor | None]:
        """`move`, and what `Trajectory.inner_entropy` shows of it, (R + 1, B), if anything."""
        return self.move(now), None

    def move_differentiably(self, now: Intervention, smoothing: float | None) -> Tensor:
        """`move` as a differentiable function; without smoothing, what it adds to x counts as a constant."""
        inputs = [t for t in (now.state, now.received, now.image) if t.requires_grad]
        if smoothing is not None:
            moved = self.move(now)
            if moved.requires_grad and inputs:
                probe = torch.zeros_like(moved)
                found = torch.autograd.grad(moved, inputs, probe, retain_graph=True, allow_unused=True)
                if any(gradient is not None for gradient in found):
                    return moved
        with torch.no_grad():
            constant = replace(now, state=now.state.detach(), image=now.image.detach(), received=now.received.detach())
            moved = self.move(constant)
        return now.received + (moved - now.received).detach()

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
        return self.predictor.undefended()

    @property
    def interventions(self) -> list[int]:
        """The solver steps after which x^ moves, by this defence or by an input defence inside."""
        steps = range(1, self.num_states + 1)
        return [t for t in steps if any(t % layer.every == 0 for layer in self.layers)]

    @property
    def layers(self) -> list[InputDefence]:
        """The input defences inside, from the innermost, and this one."""
        return [*_layers(self.predictor), self]

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
        def move(now: Intervention) -> tuple[Tensor, Tensor | None]:
            measured = None
            due = [layer for layer in self.layers if now.step % layer.every == 0]
            for layer in due:
                found = None
                if exact:
                    image = layer.move_differentiably(now, smoothing)
                elif measure:
                    image, found = layer.move_and_measure(now)
                else:
                    image = layer.move(now)
                measured = measured if found is None else found
                now = replace(now, image=image) if layer is due[-1] else now.moved(image)
            return now.image, measured

        # `move` may differentiate, which is impossible with tensors that were made in inference mode
        with attacking(self), torch.inference_mode(False), torch.set_grad_enabled(exact):
            x = x.clone() if x.is_inference() else x
            return self.run_flow(move, x, steps=steps, judge_last=judge_last, idle=measure)

    def run_flow(
        self, move: flows.Move, x: Tensor, *, steps: int | None = None, judge_last: bool = True, idle: bool = False
    ) -> Pass:
        """Runs the dynamics with interventions; `idle` as for the functions in `flows`."""
        for layer in self.layers:
            layer.check()
            same = replace(layer.switches, direction=self.switches.direction) == self.switches
            if layer is not self and not (same and self.switches.history == "kept"):
                raise ValueError(
                    f"{type(self).__name__} around {type(layer).__name__}: input defences can be combined only if both "
                    "continue the pass as variant 'paper' does"
                )
        flow = flows.kept_history if self.switches.history == "kept" else flows.restarted_history
        return flow(self, move, x, steps=steps, judge_last=judge_last, idle=idle)


def _layers(predictor: object) -> list[InputDefence]:
    """The input defences of a predictor, from the innermost."""
    found: list[InputDefence] = []
    while isinstance(predictor, Defence):
        found = [predictor, *found] if isinstance(predictor, InputDefence) else found
        predictor = predictor.predictor
    return found
