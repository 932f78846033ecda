"""Oracles of deep equilibrium models and of defences around them (METHOD.md sections 2 and 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from robustdeq.attacks.oracles.oracle import Oracle
from robustdeq.models.predictor import DynamicPredictor, Pass
from robustdeq.models.straight import straight_through
from robustdeq.solve import GradientPolicy, Phantom, SolvedState, Unrolled

View = Literal["oblivious", "aware", "bpda"]
"""What the attacker's pass runs: the undefended model; the defended pass, its states read at the received image; or the
defended pass, read at the purified image, whose dependence on the received one is taken as the identity."""


@dataclass(frozen=True, eq=False)
class StateOracle(Oracle):
    """Gradients of an estimator at a state of a pass; the state itself is a constant."""

    predictor: DynamicPredictor

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_dynamic(self, self.predictor)
        if self.seen not in ("oblivious", "aware", "bpda"):
            raise ValueError(f"view must be 'oblivious', 'aware' or 'bpda', got {self.seen!r}")
        self._check_state()

    def _check_state(self) -> None:
        """Also before each pass: a model's solver may be replaced."""
        steps = self.predictor.base.solver.max_steps
        if self.at is not None and not 1 <= self.at <= steps:
            raise ValueError(f"state counts from 1 to the solver's {steps} steps, got {self.at}")

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor."""
        return self.predictor

    @property
    @abstractmethod
    def seen(self) -> View:
        """What the attacker's pass runs."""

    @property
    @abstractmethod
    def at(self) -> int | None:
        """The state, or None for the one that the model reads out."""

    @property
    @abstractmethod
    def policy(self) -> GradientPolicy:
        """The estimator."""

    def estimate(self, x: Tensor) -> Tensor:
        """The head at what the estimator makes of the state."""
        self._check_state()
        model = self.predictor.base
        walker = model if self.seen == "oblivious" else self.predictor
        judge_last = self.policy.needs_inverse or (self.at is None and model.reads_residuals)
        with torch.no_grad():
            walked = walker.walk(x.detach(), steps=self.at, judge_last=judge_last)
        return self._connect(x, walked)

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """One pass for both, where the attacker's pass is the deployed one."""
        self._check_state()
        predictor, model = self.predictor, self.predictor.base
        # a defended pass may restart the solver's history: its inverse estimate is then that of its last state only
        if predictor.defended and (self.seen == "oblivious" or self.policy.needs_inverse):
            return super().estimate_and_deploy(x)
        read = predictor.reads_residuals or (self.at is None and model.reads_residuals)
        judge_last = self.policy.needs_inverse or read
        last = predictor.steps_read
        steps = None if last is None or self.at is None else max(last, self.at)
        with torch.no_grad():
            walked = predictor.walk(x.detach(), steps=steps, judge_last=judge_last)
            deployed = predictor.read_out(walked)
        return self._connect(x, walked), deployed

    def _connect(self, x: Tensor, walked: Pass) -> Tensor:
        model, solution = self.predictor.base, walked.solution
        assert solution.trajectory is not None
        if self.at is None:
            state = model.read(solution)
        else:
            state = SolvedState(
                z=solution.trajectory[self.at - 1],
                step=solution.steps.clamp_max(self.at),
                solution=solution,
                batch_coupled=model.solver.batch_coupled,
            )
        if self.seen == "bpda":
            x = straight_through(walked.input_at(self.at or len(solution.trajectory)), x)
        f, _ = model.begin(x)
        logits: Tensor = model.head(f.unpack(self.policy.connect(f, state)))
        return logits


class OneState:
    """What is seen by oracles that look at one state, of the undefended pass or of the defended one."""

    state: int
    aware: bool

    @property
    def seen(self) -> View:
        """By `aware`."""
        return "aware" if self.aware else "oblivious"

    @property
    def at(self) -> int:
        """`state`."""
        return self.state


@dataclass(frozen=True, eq=False)
class UnrolledState(OneState, StateOracle):
    """The intermediate-state attack (i, K_a, lambda): the loss at y, unrolled from the detached z^[i].

    Args:
        predictor: A DEQ, or a defence around one.
        state: i.
        steps: K_a.
        damping: lambda, the weight of f.
        form: "paper": K_a damped steps from z^[i]; "released": y = f(z^[i]), then K_a damped steps.
        aware: The state is that of the defended pass, not of the undefended one.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    state: int = 3
    steps: int = 5
    damping: float = 0.5
    form: Literal["paper", "released"] = "paper"
    aware: bool = False

    def __post_init__(self) -> None:
        if self.form not in ("paper", "released"):
            raise ValueError(f"form must be 'paper' or 'released', got {self.form!r}")
        if self.form == "paper" and self.steps < 1:
            raise ValueError("the paper's form needs at least one step: with none there is no gradient")
        super().__post_init__()
        _ = self.policy

    @property
    def policy(self) -> GradientPolicy:
        """The unrolling."""
        kind = Phantom if self.form == "released" else Unrolled
        return kind(steps=self.steps, damping=self.damping)


@dataclass(frozen=True, eq=False)
class Estimate(StateOracle):
    """The gradient of any policy (Phantom, Implicit, Neumann, OneStep, SharedInverse) at any state.

    Args:
        predictor: A DEQ, or a defence around one.
        gradient: The estimator; the model's own if not given. Phantom(9, 0.5) at the final state is "ready-made".
        state: The state it starts from; the one that the model reads out if not given.
        view: "oblivious", "aware" or "bpda", see `View`.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    gradient: GradientPolicy | None = None
    state: int | None = None
    view: View = "oblivious"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy.differentiates_solver:
            raise ValueError("gradients through the solver are those of robustdeq.attacks.Exact")

    @property
    def seen(self) -> View:
        """`view`."""
        return self.view

    @property
    def at(self) -> int | None:
        """`state`."""
        return self.state

    @property
    def policy(self) -> GradientPolicy:
        """`gradient`, or the model's."""
        return self.predictor.base.gradient if self.gradient is None else self.gradient


@dataclass(frozen=True, eq=False)
class Exact(Oracle):
    """Autograd through every solver step, to what is deployed.

    On an undefended predictor this is the exact gradient of the deployed logits. Around a defence it differentiates
    through the defence's inner updates too, with the sign smoothed to tanh(g / (smoothing * mean |g|)), recomputing
    each intervention in the backward pass; the surrogate's values are then those of the smoothed defence.

    Args:
        predictor: A DEQ, or a defence around one.
        smoothing: Of the sign. None: what the defence adds to the input is a constant (BPDA through the solver).
        oblivious: The undefended model's gradient instead.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    predictor: DynamicPredictor
    smoothing: float | None = 1.0
    oblivious: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_dynamic(self, self.predictor)
        if self.smoothing is not None and not self.smoothing > 0:
            raise ValueError(f"smoothing must be positive, or None for a constant; got {self.smoothing}")

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor."""
        return self.predictor

    def estimate(self, x: Tensor) -> Tensor:
        """The deployed logits, differentiated all the way."""
        predictor = self.predictor.undefended() if self.oblivious else self.predictor
        walked = predictor.walk_differentiably(
            x, steps=predictor.steps_read, judge_last=predictor.reads_residuals, smoothing=self.smoothing
        )
        return predictor.read_out(walked, exact=True)

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Undefended, the surrogate is the deployed predictor."""
        if self.predictor.defended:
            return super().estimate_and_deploy(x)
        surrogate = self.estimate(x)
        return surrogate, surrogate.detach()


@dataclass(frozen=True, eq=False)
class WatchedStates(Oracle):
    """The states a defence looks at, all at once: log p(x), the mean over those states of log softmax h(f(z; x)).

    Under the loss "confident" (the largest mean log p of a wrong class) an attack makes one wrong class likely at every
    one of them, so that the defence's descent of the entropy works for the attacker. (The paper's variant looks at a
    state before it is solved again with the new input; here it is read after that. The released one looks at the state
    that a segment hands on; here the segment's last is read, the same where residuals fall.)
    """

    predictor: DynamicPredictor

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_dynamic(self, self.predictor)

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor."""
        return self.predictor

    def estimate(self, x: Tensor) -> Tensor:
        """Mean log-probabilities, at the purified images, taken as the received ones plus a constant."""
        with torch.no_grad():
            walked = self.predictor.walk(x.detach(), steps=max(self.predictor.watched), judge_last=False)
        return self._mean(x, walked)

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """One pass for both."""
        predictor, last = self.predictor, self.predictor.steps_read
        steps = None if last is None else max(last, *predictor.watched)
        with torch.no_grad():
            walked = predictor.walk(x.detach(), steps=steps, judge_last=predictor.reads_residuals)
            deployed = predictor.read_out(walked)
        return self._mean(x, walked), deployed

    def _mean(self, x: Tensor, walked: Pass) -> Tensor:
        model, states, trajectory = self.predictor.base, self.predictor.watched, walked.solution.trajectory
        assert trajectory is not None
        total = None
        for t in states:
            f, _ = model.begin(straight_through(walked.input_at(t), x))
            log_p = model.head(f.unpack(f(trajectory[t - 1]))).log_softmax(-1)
            total = log_p if total is None else total + log_p
        assert total is not None
        return total / len(states)


def _check_dynamic(oracle: Oracle, predictor: object) -> None:
    if not isinstance(predictor, DynamicPredictor):
        raise TypeError(
            f"{type(oracle).__name__} looks at states of a DEQ or of a defence around one, got "
            f"{type(predictor).__name__}; for a model without dynamics use robustdeq.attacks.Direct"
        )
