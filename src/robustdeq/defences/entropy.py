"""Input entropy reduction along the dynamics (the paper's Sec. 3.2, Algorithm 1; docs/method.md, section 4)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.defences.descent import EntropyDescent, InputEntropy, SmoothDescent
from robustdeq.defences.flows import Move
from robustdeq.defences.input_defence import InputDefence
from robustdeq.defences.intervention import Intervention
from robustdeq.defences.switches import Direction, FinalInput, HandedOn, History, Variant, switches_of
from robustdeq.models.predictor import DynamicPredictor, Pass, Purification
from robustdeq.threat import number


class EntropyReduction(InputDefence):
    """Moves the input towards lower entropy of the prediction while the dynamics run.

    After every `every` solver steps, `steps` times x^ <- Proj(x^ - step_size * direction(grad_x H(h(f(z; x^))))); then
    the dynamics continue with x^.

    Args:
        predictor: A DEQ, or a defence of its readout such as `EarlyState`.
        every: T_f, the number of solver steps between interventions.
        steps: R, the number of updates of x^ at an intervention.
        step_size: beta, the size of an update.
        radius: Largest distance of x^ from the received image, per pixel.
        variant: "paper" (Algorithm 1) or "released" (the authors' code): the default of the options after `direction`.
        direction: Along the "sign" of the gradient, or along the "gradient" itself, as Eq. 8 is printed.
        resolve: Whether the step to z^[t] is taken again with the new x^.
        history: Whether the solver's history is "kept", or "restarted" after every intervention.
        handed_on: The state that a restarted solver starts from: the last "iterate" or the "lowest" residual's.
        final_input: The image that the final readout applies: the "purified" or the "received" one.
    """

    def __init__(
        self,
        predictor: DynamicPredictor,
        *,
        every: int = 2,
        steps: int = 10,
        step_size: float = 2 / 255,
        radius: float = 8 / 255,
        variant: Variant = "paper",
        direction: Direction = "sign",
        resolve: bool | None = None,
        history: History | None = None,
        handed_on: HandedOn | None = None,
        final_input: FinalInput | None = None,
    ) -> None:
        super().__init__(predictor, every=every)
        self.variant = variant
        self.switches = switches_of(
            variant,
            direction=direction,
            resolve=resolve,
            history=history,
            handed_on=handed_on,
            final_input=final_input,
        )
        sizes = number(step_size, "step_size"), number(radius, "radius")
        self.descent = EntropyDescent(steps, *sizes, self.switches.direction)
        self.check()

    @override
    def check(self) -> None:
        super().check()
        d = self.descent
        if not (d.steps >= 0 and d.step_size >= 0 and d.radius >= 0):
            raise ValueError(
                "steps, step_size and radius must be >= 0, "
                f"got steps={d.steps}, step_size={d.step_size}, radius={d.radius}"
            )

    @override
    def move(self, now: Intervention) -> Tensor:
        return self.descent(InputEntropy(self.base), now.f, now.state, now.received, now.image)

    @override
    def move_and_measure(self, now: Intervention) -> tuple[Tensor, Tensor | None]:
        trace: list[Tensor] = []
        moved = self.descent(InputEntropy(self.base), now.f, now.state, now.received, now.image, trace)
        return moved, torch.stack(trace)

    @override
    def move_differentiably(self, now: Intervention, smoothing: float | None) -> Tensor:
        if smoothing is None:
            return super().move_differentiably(now, smoothing)
        descend = SmoothDescent(self.descent, smoothing)
        return descend(InputEntropy(self.base), now.f, now.state, now.received, now.image)

    @override
    def run_flow(
        self, move: Move, x: Tensor, *, steps: int | None = None, judge_last: bool = True, idle: bool = False
    ) -> Pass:
        if self.descent.steps or self.switches.history == "restarted" or len(self.layers) > 1:
            return super().run_flow(move, x, steps=steps, judge_last=judge_last, idle=idle)
        # Without updates this is bit for bit the undefended solve; its interventions leave the images as they are.
        self.check()
        walked = self.base.walk(x, steps=steps, judge_last=judge_last)
        since = [t for t in self.interventions if t <= (steps or self.num_states)]
        states, H, f = walked.solution.trajectory, InputEntropy(self.base), walked.f
        assert states is not None
        inner = [H(f, f.prepare(states[t - 1]), x)[None] for t in since] if idle else []
        return replace(walked, purification=Purification(inputs=[x] * len(since), since=since, inner_entropy=inner))

    @override
    def extra_repr(self) -> str:
        d = self.descent
        settings = f"every={self.every}, steps={d.steps}, step_size={d.step_size:.4g}, radius={d.radius:.4g}"
        return f"{settings}, variant={self.variant!r}"
