"""What attacks, defences and evaluation see of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robustdeq.models.dynamics import BoundDynamics
from robustdeq.models.modes import evaluating
from robustdeq.models.straight import straight_through
from robustdeq.solve import Solution

if TYPE_CHECKING:
    from robustdeq.models.deq import DEQ


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """A pass along the dynamics, state by state; row t - 1 belongs to z^[t], and there are always N rows."""

    states: Float[Tensor, "N B *latent"]
    logits: Float[Tensor, "N B C"]
    """head(z^[t]), no unrolling."""
    entropy: Float[Tensor, "N B"]
    """Of softmax(logits), in nats."""
    residual: Float[Tensor, "N B"]
    """The residual that the solver judges by."""
    status: Int[Tensor, " B"]
    """A `robustdeq.Status` for each sample."""
    steps: Int[Tensor, " B"]
    """Solver steps before the sample froze."""
    lowest_step: Int[Tensor, " B"]
    """The step whose residual is lowest: with the default readout, the state that `model(x)` starts from.

    In a defended pass, of the steps since the last intervention: residuals at different images are not compared."""
    inputs: Float[Tensor, "I B *image"] | None = None
    """A defended pass: the purified images after each intervention (I = 0 if there is none)."""
    inner_entropy: Float[Tensor, "I R1 B"] | None = None
    """A defended pass: H(h(f(z; x^))) before each of the R updates of an intervention, and after the last."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Purification:
    """What a defence did to the input along a pass."""

    inputs: list[Float[Tensor, "B *image"]]
    """The purified images after each intervention."""
    since: list[int]
    """The first state that each of them acts on."""
    inner_entropy: list[Float[Tensor, "R1 B"]]
    """See `Trajectory.inner_entropy`; empty unless asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """One pass of a predictor along its dynamics, from which logits are read."""

    x: Tensor
    """The received image."""
    x_read: Tensor
    """The image whose dynamics the final readout applies: x, or what a defence made of it."""
    f: BoundDynamics
    """f(.; u(x_read))."""
    solution: Solution
    """With its trajectory."""
    purification: Purification | None = None

    def input_at(self, state: int) -> Tensor:
        """The image in force at z^[state]."""
        x = self.x
        if self.purification is not None:
            for purified, since in zip(self.purification.inputs, self.purification.since, strict=True):
                x = purified if since <= state else x
        return x


@runtime_checkable
class Predictor(Protocol):
    """Pixels in [0, 1] to the deployed logits."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (B, C), differentiable in x."""
        ...

    def trajectory(self, x: Tensor) -> Trajectory:
        """The pass along the dynamics."""
        ...


class DynamicPredictor(nn.Module, ABC):
    """A predictor whose passes can be looked into: a DEQ, or a defence around one."""

    @property
    @abstractmethod
    def base(self) -> DEQ:
        """The undefended model at the bottom."""

    @property
    @abstractmethod
    def defended(self) -> bool:
        """Whether a pass differs from that of the undefended model."""

    @property
    @abstractmethod
    def steps_read(self) -> int | None:
        """How many solver steps the deployed logits need; None if all, and what follows them."""

    @property
    @abstractmethod
    def reads_residuals(self) -> bool:
        """Whether the deployed logits depend on the residual of the last state."""

    @abstractmethod
    def walk(self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, measure: bool = False) -> Pass:
        """The dynamics on x, as deployed and recorded.

        Args:
            x: Pixels.
            steps: Stop after this many solver steps; if not given, take all, for a final readout to follow.
            judge_last: Know the residual of the last state too, which costs one more evaluation of f.
            measure: Measure what only `trajectory` shows.
        """

    @abstractmethod
    def walk_differentiably(
        self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, smoothing: float | None = None
    ) -> Pass:
        """The pass with exact gradients: autograd through every solver step.

        Args:
            x: Pixels.
            steps: As of `walk`.
            judge_last: As of `walk`.
            smoothing: A defence's updates of its input are differentiated with their sign smoothed, in units of their
                gradients' mean magnitude; None takes what they add to x as constant.
        """

    @abstractmethod
    def undefended(self) -> DynamicPredictor:
        """The same readout without any defence of the input."""

    @property
    @abstractmethod
    def watched(self) -> list[int]:
        """The states that a defence looks at; all of them, if there is none."""

    @abstractmethod
    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        """The deployed logits of a pass of at least `steps_read` steps.

        They are differentiable in the injection of `walked.f` as the model's gradient policy says; with `exact`, in the
        states of the pass too.
        """

    def image_read(self, walked: Pass) -> Tensor:
        """The image that the deployed logits are differentiated at."""
        return walked.x_read

    def predict(self, x: Tensor) -> Tensor:
        """The deployed logits, by a pass and a readout in eval mode, differentiable where x is.

        What a defence adds to x is a constant to their gradient.
        """
        differentiate, gradient = torch.is_grad_enabled() and x.requires_grad, self.base.gradient
        with evaluating(self):
            if differentiate and gradient.differentiates_solver:
                walked = self.walk_differentiably(x, steps=self.steps_read, judge_last=self.reads_residuals)
                return self.read_out(walked, exact=True)
            judge_last = self.reads_residuals or (differentiate and gradient.needs_inverse)
            with torch.no_grad():
                walked = self.walk(x.detach(), steps=self.steps_read, judge_last=judge_last)
                if not differentiate:
                    return self.read_out(walked)
            read = straight_through(self.image_read(walked), x)
            return self.read_out(replace(walked, f=self.base.begin(read)[0]))

    @torch.no_grad()
    def trajectory(self, x: Tensor) -> Trajectory:
        """Every state on x and what the head makes of it, as deployed: in eval mode, whatever the current one."""
        with evaluating(self):
            walked = self.walk(x, measure=True)
            states = walked.solution.trajectory
            assert states is not None
            logits = torch.stack([self.base.head(walked.f.unpack(z)) for z in states])
        solution, purification = walked.solution, walked.purification
        inner = purification.inner_entropy if purification is not None else []
        return Trajectory(
            states=states,
            logits=logits,
            entropy=entropy(logits),
            residual=solution.residuals,
            status=solution.status,
            steps=solution.steps,
            lowest_step=solution.lowest_step,
            inputs=None if purification is None else _stack(purification.inputs, x),
            inner_entropy=torch.stack(inner) if inner else None,
        )


def _stack(images: list[Tensor], x: Tensor) -> Tensor:
    return torch.stack(images) if images else x.new_empty(0, *x.shape)


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of softmax(logits), over the last axis."""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
