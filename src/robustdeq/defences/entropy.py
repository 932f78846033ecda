"""Input entropy reduction along the dynamics (the paper's Sec. 3.2, Algorithm 1; METHOD.md section 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robustdeq.defences.checks import check_dynamic
from robustdeq.defences.descent import Descent, EntropyDescent, InputEntropy
from robustdeq.defences.flows import kept_history, restarted_history
from robustdeq.defences.smooth import SmoothDescent
from robustdeq.defences.switches import Variant, switches_of
from robustdeq.models import DEQ, BoundDynamics
from robustdeq.models.modes import attacking
from robustdeq.models.predictor import DynamicPredictor, Pass, Purification


class EntropyReduction(DynamicPredictor):
    """A predictor that moves its input towards lower prediction entropy while the dynamics run.

    After every `every` solver steps, `steps` times x^ <- Proj(x^ - step_size * direction(grad_x H(h(f(z; x^))))); then
    the dynamics continue with x^, which is never reset. The variants are METHOD.md's; each switch can be set apart.

    Args:
        predictor: A DEQ, or a defence around one.
        every: T_f, solver steps between interventions.
        steps: R, inner iterations of an intervention.
        step_size: beta.
        radius: How far x^ may move from the received image, per pixel.
        variant: "paper" (Algorithm 1) or "released" (the authors' code).
        switches: Any field of `Switches`, to set it apart from the variant.
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
        **switches: Any,
    ) -> None:
        super().__init__()
        check_dynamic(self, predictor)
        if predictor.defended:
            raise ValueError("the predictor reduces entropies already; wrap the undefended model")
        self.predictor = predictor
        self.every = every
        self.variant = variant
        self.switches = switches_of(variant, switches)
        self.descent = EntropyDescent(steps, step_size, radius, self.switches.direction)
        self._check()

    def _check(self) -> None:
        """Settings that cannot work; the model's solver may have been replaced since construction."""
        if self.every < 1 or self.descent.steps < 0:
            raise ValueError(f"every must be >= 1 and steps >= 0, got every={self.every}, steps={self.descent.steps}")
        if not (self.descent.step_size >= 0 and self.descent.radius >= 0):
            raise ValueError(
                f"step_size and radius must be >= 0, got {self.descent.step_size} and {self.descent.radius}"
            )
        solver_steps = self.base.solver.max_steps
        if self.switches.history == "restarted" and solver_steps % self.every:
            raise ValueError(
                f"with history='restarted' (variant 'released') every must divide the solver's {solver_steps} steps, "
                f"got every={self.every}"
            )

    @property
    def base(self) -> DEQ:
        """The undefended model."""
        return self.predictor.base

    @property
    def defended(self) -> bool:
        """It is."""
        return True

    @property
    def steps_read(self) -> int | None:
        """As the predictor inside."""
        return self.predictor.steps_read

    @property
    def reads_residuals(self) -> bool:
        """As the predictor inside."""
        return self.predictor.reads_residuals

    def undefended(self) -> DynamicPredictor:
        """The predictor inside."""
        return self.predictor

    @property
    def watched(self) -> list[int]:
        """The states t at which it intervenes; all, where it never does."""
        return self.interventions or self.base.watched

    @property
    def interventions(self) -> list[int]:
        """The solver steps t after which x^ moves."""
        return list(range(self.every, self.base.solver.max_steps + 1, self.every))

    def forward(self, x: Tensor) -> Tensor:
        """The deployed logits."""
        return self.predict(x)

    def walk(self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, measure: bool = False) -> Pass:
        """The defended dynamics on x."""
        traces: list[list[Tensor]] = []

        def traced(H: InputEntropy, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> Tensor:
            traces.append([])
            return self.descent(H, f, z, x, x_hat, traces[-1])

        # the inner loop differentiates: tensors of an inference-mode caller cannot take part in that
        with attacking(self), torch.inference_mode(False), torch.no_grad():
            x = x.clone() if x.is_inference() else x
            flow = self.flow(traced if measure else self.descent)
            walked = flow(x, steps=steps, judge_last=judge_last, idle=measure)
            if measure and not traces and walked.purification is not None:
                traces = self._entropies(walked)
        if walked.purification is None or not traces:
            return walked
        return replace(
            walked, purification=replace(walked.purification, inner_entropy=[torch.stack(t) for t in traces])
        )

    def walk_differentiably(
        self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, smoothing: float | None = None
    ) -> Pass:
        """The defended dynamics, differentiated through the solver and through the inner updates."""
        with attacking(self), torch.inference_mode(False), torch.enable_grad():
            x = x.clone() if x.is_inference() else x
            return self.flow(SmoothDescent(self.descent, smoothing))(x, steps=steps, judge_last=judge_last)

    def flow(self, descent: Descent) -> Callable[..., Pass]:
        """The dynamics with the given inner loop: a function of x, steps, judge_last and idle."""
        self._check()
        kept = self.switches.history == "kept"
        if self.descent.steps == 0 and kept:
            return self._untouched
        run = partial(
            kept_history if kept else restarted_history,
            self.base,
            every=self.every,
            descent=descent,
            switches=self.switches,
        )
        return lambda x, *, steps=None, judge_last=True, idle=False: run(
            x=x, steps=steps, judge_last=judge_last, idle=idle
        )

    def _untouched(self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, idle: bool = False) -> Pass:
        """No inner iteration: exactly the undefended solve, whose interventions leave the image as it is."""
        walked = self.base.walk(x, steps=steps, judge_last=judge_last)
        since = [t for t in self.interventions if t <= (steps or self.base.solver.max_steps)]
        return replace(walked, purification=Purification(inputs=[x] * len(since), since=since, inner_entropy=[]))

    def _entropies(self, walked: Pass) -> list[list[Tensor]]:
        """Without inner iterations: the entropy at each state that an intervention would look at."""
        states, H = walked.solution.trajectory, InputEntropy(self.base)
        assert states is not None
        assert walked.purification is not None
        return [[H(walked.f, walked.f.prepare(states[t - 1]), walked.x)] for t in walked.purification.since]

    def image_read(self, walked: Pass) -> Tensor:
        """As the predictor inside."""
        return self.predictor.image_read(walked)

    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        """As the predictor inside."""
        return self.predictor.read_out(walked, exact=exact)

    def extra_repr(self) -> str:
        """Settings."""
        d = self.descent
        settings = f"every={self.every}, steps={d.steps}, step_size={d.step_size:.4g}, radius={d.radius:.4g}"
        return f"{settings}, variant={self.variant!r}"
