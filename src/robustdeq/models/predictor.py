"""The protocol between models, defences, attacks and evaluation: predictors, their passes, and defences as wrappers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.checks import check_images
from robustdeq.models.dynamics import BoundDynamics
from robustdeq.models.modes import evaluating
from robustdeq.models.straight import straight_through
from robustdeq.solve import Solution

if TYPE_CHECKING:
    from robustdeq.models.deq import DEQ

FINAL = "final"
"""The name of the final state: the one that the model's own readout chooses, unrolled by its gradient policy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """The states of a pass and what the head makes of them; row t - 1 belongs to z^[t], and there are always N rows."""

    states: Float[Tensor, "N B *latent"]
    logits: Float[Tensor, "N B C"]
    """head(z^[t]), without unrolling."""
    deployed: Float[Tensor, "B C"]
    """The logits that the predictor itself returns for these images, read from the same pass."""
    entropy: Float[Tensor, "N B"]
    """Entropy of softmax(logits) in nats."""
    residual: Float[Tensor, "N B"]
    """The residual by which the solver judges convergence."""
    status: Int[Tensor, " B"]
    """A `robustdeq.Status` for each sample."""
    steps: Int[Tensor, " B"]
    """Solver steps that each sample took before it froze."""
    lowest_step: Int[Tensor, " B"]
    """The step with the lowest residual: with the default readout, the state that `model(x)` starts from.

    In a defended pass only the steps since the last intervention count: residuals for different images are not
    comparable."""
    inputs: Float[Tensor, "I B *image"] | None = None
    """The purified images after each intervention of a defence (I = 0 if there was none); None without a defence."""
    inner_entropy: Float[Tensor, "E R1 B"] | None = None
    """Entropy of head(f(z; x^)) before each of the R updates of an intervention and after the last (R1 = R + 1), of the
    E interventions that measure it: those of `EntropyReduction`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Purification:
    """What a defence did to the input during a pass."""

    inputs: list[Float[Tensor, "B *image"]]
    """The purified images after each intervention."""
    since: list[int]
    """The first state that each of these images acts on."""
    inner_entropy: list[Float[Tensor, "R1 B"]]
    """See `Trajectory.inner_entropy`; filled only in passes with `measure=True`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """One pass of a predictor along its dynamics, from which logits are read."""

    x: Tensor
    """The received images."""
    x_read: Tensor
    """The images whose dynamics the final readout applies: the received ones, or purified ones."""
    f: BoundDynamics
    """f(.; u(x_read))."""
    solution: Solution
    """The solve, with its trajectory."""
    purification: Purification | None = None

    def input_at(self, state: int) -> Tensor:
        """The images that the solver step to z^[state] was taken with."""
        x = self.x
        if self.purification is not None:
            for purified, since in zip(self.purification.inputs, self.purification.since, strict=True):
                x = purified if since <= state else x
        return x


@runtime_checkable
class Predictor(Protocol):
    """Maps pixels in [0, 1] to the deployed logits."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (B, C), differentiable in x."""
        ...

    def trajectory(self, x: Tensor) -> Trajectory:
        """The states of the pass on x."""
        ...


class DynamicPredictor(nn.Module, ABC):
    """A predictor whose passes can be looked into: a DEQ, or a `Defence` around one.

    A prediction is a pass and a readout, `read_out(walk(x))`; everything else here is derived from these two.
    """

    defended: bool = False
    """Whether a pass differs from that of the undefended model; reading another state does not count."""
    early_state: int | None = None
    """The state that predictions are read from; None for the final one, which needs all solver steps."""

    @property
    @abstractmethod
    def base(self) -> DEQ:
        """The undefended model inside."""

    @property
    @abstractmethod
    def reads_residuals(self) -> bool:
        """Whether the deployed logits depend on the residual of the last state."""

    @abstractmethod
    def walk(
        self,
        x: Tensor,
        *,
        steps: int | None = None,
        judge_last: bool = True,
        measure: bool = False,
        exact: bool = False,
        smoothing: float | None = None,
    ) -> Pass:
        """Runs the deployed dynamics on x and records every state.

        Args:
            x: Pixels.
            steps: Number of solver steps; None: all of them, with a final readout to follow.
            judge_last: Compute the residual of the last state too, which costs one more evaluation of f.
            measure: Compute what only `trajectory` shows, such as entropies during an intervention.
            exact: Record the pass for exact gradients: autograd through every solver step.
            smoothing: Width of the smoothed sign through which an exact pass differentiates a defence's updates,
                relative to the mean magnitude of their gradients. None: what a defence adds to x counts as a constant.
        """

    @abstractmethod
    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        """The deployed logits (B, C) of a pass of at least `early_state` steps.

        Args:
            walked: A pass of this predictor.
            exact: Differentiate through the states of the pass too. Otherwise the states are constants, and the logits
                are differentiable in the injection of `walked.f` as the model's gradient policy says.
        """

    def read_state(self, walked: Pass, state: int, *, exact: bool = False) -> Tensor:
        """The logits (B, C) of the early state z^[state], without unrolling; `exact` as for `read_out`."""
        base, f, chosen = self.base, walked.f, self.base.read(walked.solution, state=state)
        if exact or not torch.is_grad_enabled():
            logits: Tensor = base.head(f.unpack(chosen.z))
            return logits
        with torch.no_grad():
            values = base.head(f.unpack(chosen.z))
        return straight_through(values, base.head(f.unpack(base.gradient.connect(f, chosen))))

    def undefended(self) -> DynamicPredictor:
        """The predictor without any defence but `EarlyState`."""
        return self

    @property
    def watched(self) -> list[int]:
        """The states that a defence looks at; without a defence all states."""
        return list(range(1, self.num_states + 1))

    @property
    def num_states(self) -> int:
        """N, the number of solver steps."""
        return self.base.solver.max_steps

    @property
    def state_names(self) -> list[str]:
        """Names of the states that evaluation tells apart: "1" to "N", and "final"."""
        return [*map(str, range(1, self.num_states + 1)), FINAL]

    @property
    def deployed_state(self) -> str:
        """The name of the state that predictions are read from, such as "8" or "final"."""
        return FINAL if self.early_state is None else str(self.early_state)

    @property
    def batch_independent(self) -> bool:
        """Whether the solvers treat every image of a batch as if it were alone.

        This says nothing about a user's own encoder, head or defence.
        """
        backward = getattr(self.base.gradient, "solver", self.base.solver)
        return not (self.base.solver.batch_coupled or backward.batch_coupled)

    def forward(self, x: Tensor) -> Tensor:
        """The deployed logits (B, C) in eval mode, differentiable in x but not in the weights.

        What a defence adds to x counts as a constant in the gradient.
        """
        check_images(self, x)
        differentiate, gradient = torch.is_grad_enabled() and x.requires_grad, self.base.gradient
        with evaluating(self):
            if differentiate and gradient.differentiates_solver:
                walked = self.walk(x, steps=self.early_state, judge_last=self.reads_residuals, exact=True)
                return self.read_out(walked, exact=True)
            judge_last = self.reads_residuals or (differentiate and gradient.needs_inverse)
            with torch.no_grad():
                walked = self.walk(x.detach(), steps=self.early_state, judge_last=judge_last)
                if not differentiate:
                    return self.read_out(walked)
            read = walked.x_read if self.early_state is None else walked.input_at(self.early_state)
            return self.read_out(replace(walked, f=self.base.begin(straight_through(read, x))[0]))

    @torch.no_grad()
    def trajectory(self, x: Tensor) -> Trajectory:
        """Every state of the deployed pass on x and the logits of each, in eval mode."""
        check_images(self, x)
        with evaluating(self):
            walked = self.walk(x, measure=True)
            states = walked.solution.trajectory
            assert states is not None
            logits = torch.stack([self.base.head(walked.f.unpack(z)) for z in states])
            deployed = self.read_out(walked)
        solution, purification = walked.solution, walked.purification
        inner = purification.inner_entropy if purification is not None else []
        return Trajectory(
            states=states,
            logits=logits,
            deployed=deployed,
            entropy=entropy(logits),
            residual=solution.residuals,
            status=solution.status,
            steps=solution.steps,
            lowest_step=solution.lowest_step,
            inputs=None if purification is None else torch.stack([x, *purification.inputs])[1:],
            inner_entropy=torch.stack(inner) if inner else None,
        )


def _of_inner(name: str) -> Any:
    """A property whose value is that of the predictor inside."""
    return property(lambda self: getattr(self.predictor, name))


class Defence(DynamicPredictor):
    """A predictor around a predictor: what a subclass does not override is forwarded to the predictor inside.

    To change what is read from a pass, subclass `robustdeq.ReadoutDefence`; to change the input between solver steps,
    `robustdeq.InputDefence`. Each asks for one method.

    Args:
        predictor: A DEQ, or a defence around one.
    """

    base = _of_inner("base")
    defended = _of_inner("defended")
    early_state = _of_inner("early_state")
    reads_residuals = _of_inner("reads_residuals")
    watched = _of_inner("watched")
    metadata = _of_inner("metadata")
    model_name = _of_inner("model_name")

    def __init__(self, predictor: DynamicPredictor) -> None:
        super().__init__()
        if not isinstance(predictor, DynamicPredictor):
            raise TypeError(
                f"{type(self).__name__} works along the dynamics of a DEQ, or of a defence around one; "
                f"{type(predictor).__name__} has none"
            )
        self.predictor = predictor

    @property
    def training(self) -> bool:
        """The mode of the predictor inside: whoever restores the mode it found leaves the model as it was."""
        inner = self.__dict__.get("_modules", {}).get("predictor")
        return inner is not None and inner.training

    @training.setter
    def training(self, mode: bool) -> None:
        inner = self.__dict__.get("_modules", {}).get("predictor")
        if inner is not None:  # otherwise it is being constructed
            inner.training = mode

    @override
    def undefended(self) -> DynamicPredictor:
        if not self.defended:
            return self
        other = copy.copy(self)  # the same settings around another predictor
        other._modules = {**self._modules, "predictor": self.predictor.undefended()}
        return other

    @override
    def walk(self, x: Tensor, **options: Any) -> Pass:
        return self.predictor.walk(x, **options)

    @override
    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        return self.predictor.read_out(walked, exact=exact)

    @override
    def read_state(self, walked: Pass, state: int, *, exact: bool = False) -> Tensor:
        return self.predictor.read_state(walked, state, exact=exact)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of softmax(logits) in nats, over the last axis."""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
