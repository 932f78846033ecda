"""The base class of defences that change what is read from a pass."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from robustdeq.models.predictor import Defence, DynamicPredictor, Pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """What can be read from a pass: states and their logits, up to the state that is deployed."""

    predictor: DynamicPredictor
    """The predictor inside."""
    walked: Pass
    exact: bool
    state: int | None
    """The state that an `EarlyState` outside reads; None for the final one."""

    @property
    def last(self) -> int:
        """Number of the last state that may be read."""
        return self.state or len(self.states)

    @property
    def states(self) -> Tensor:
        """The states z^[1..last], (last, B, ...)."""
        states = self.walked.solution.trajectory
        assert states is not None
        return states[: self.state]

    @property
    def residuals(self) -> Tensor:
        """Residuals of the states, (last, B); that of the last may be missing (NaN) where no readout needs it."""
        return self.walked.solution.residuals[: self.state]

    def logits(self, state: int) -> Tensor:
        """head(z^[state]), (B, C), states counting from 1; differentiable as the model's gradient policy says."""
        return self.predictor.base.read_state(self.walked, state, exact=self.exact)

    @property
    def inside(self) -> Tensor:
        """The logits that the predictor inside would return."""
        if self.state is None:
            return self.predictor.read_out(self.walked, exact=self.exact)
        return self.predictor.read_state(self.walked, self.state, exact=self.exact)


class ReadoutDefence(Defence):
    """A defence that changes what is read from a pass. Subclasses implement `read` and nothing else.

    An `EarlyState` around it tells it up to which state it may read; an input defence may stand inside or around it.
    """

    defended = True

    @abstractmethod
    def read(self, seen: Readings) -> Tensor:
        """The logits (B, C), made of what is seen by differentiable operations."""

    @override
    def undefended(self) -> DynamicPredictor:
        return self.predictor.undefended()

    @override
    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        return self.read(Readings(predictor=self.predictor, walked=walked, exact=exact, state=None))

    @override
    def read_state(self, walked: Pass, state: int, *, exact: bool = False) -> Tensor:
        return self.read(Readings(predictor=self.predictor, walked=walked, exact=exact, state=state))
