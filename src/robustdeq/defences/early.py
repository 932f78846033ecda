"""The early-state defence: predict from a solver iterate instead of the unrolled final state."""

from __future__ import annotations

import torch
from torch import Tensor

from robustdeq.defences.checks import check_dynamic
from robustdeq.models import DEQ
from robustdeq.models.predictor import DynamicPredictor, Pass
from robustdeq.models.straight import straight_through
from robustdeq.solve import SolvedState


class EarlyState(DynamicPredictor):
    """Predicts from head(z^[state]) of the predictor it wraps, defended or not.

    Its gradient is what the model's gradient policy says at that state.
    """

    def __init__(self, predictor: DynamicPredictor, *, state: int = 8) -> None:
        super().__init__()
        check_dynamic(self, predictor)
        self.predictor = predictor
        self.state = state
        self._check()

    def _check(self) -> None:
        steps = self.base.solver.max_steps
        if not 1 <= self.state <= steps:
            raise ValueError(f"state counts from 1 to the solver's {steps} steps, got {self.state}")

    @property
    def base(self) -> DEQ:
        """The undefended model."""
        return self.predictor.base

    @property
    def defended(self) -> bool:
        """As the predictor inside: only the readout differs."""
        return self.predictor.defended

    @property
    def steps_read(self) -> int:
        """Up to the state; the model's solver may have been replaced since construction."""
        self._check()
        return self.state

    @property
    def reads_residuals(self) -> bool:
        """No: the state is read whatever its residual."""
        return False

    def forward(self, x: Tensor) -> Tensor:
        """The deployed logits."""
        return self.predict(x)

    def walk(self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, measure: bool = False) -> Pass:
        """As the predictor inside."""
        return self.predictor.walk(x, steps=steps, judge_last=judge_last, measure=measure)

    def walk_differentiably(
        self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, smoothing: float | None = None
    ) -> Pass:
        """As the predictor inside."""
        return self.predictor.walk_differentiably(x, steps=steps, judge_last=judge_last, smoothing=smoothing)

    def undefended(self) -> EarlyState:
        """The same state of the undefended model."""
        return EarlyState(self.predictor.undefended(), state=self.state)

    @property
    def watched(self) -> list[int]:
        """Of those of the predictor inside, the ones that come to pass."""
        return [t for t in self.predictor.watched if t <= self.state] or [self.state]

    def image_read(self, walked: Pass) -> Tensor:
        """The one in force at the state."""
        return walked.input_at(self.state)

    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        """The head at the state."""
        base, f, solution = self.base, walked.f, walked.solution
        assert solution.trajectory is not None
        z = solution.trajectory[self.state - 1]
        if exact or not torch.is_grad_enabled():
            logits: Tensor = base.head(f.unpack(z))
            return logits
        with torch.no_grad():
            values = base.head(f.unpack(z))
        state = SolvedState(
            z=z,
            step=solution.steps.clamp_max(self.state),
            solution=solution,
            batch_coupled=base.solver.batch_coupled,
        )
        return straight_through(values, base.head(f.unpack(base.gradient.connect(f, state))))

    @classmethod
    def select(cls, predictor: DynamicPredictor, x: Tensor, y: Tensor, *, batch_size: int = 250) -> EarlyState:
        """The state with the highest accuracy on images, the earliest if tied.

        The paper selects it by the accuracy under ready-made PGD-10 on held-out images: x are then the attacked ones,
        which `robustdeq.evaluation.select_state` makes.
        """
        correct = torch.zeros(predictor.base.solver.max_steps, dtype=torch.int64)
        for images, labels in zip(x.split(batch_size), y.split(batch_size), strict=True):
            predictions = predictor.trajectory(images).logits.argmax(-1)
            correct += (predictions == labels).sum(1).cpu()
        return cls(predictor, state=int(correct.argmax()) + 1)

    def extra_repr(self) -> str:
        """Settings."""
        return f"state={self.state}"
