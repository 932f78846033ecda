"""Oracles of deep equilibrium models and of defences around them (docs/method.md, sections 2 and 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.oracles.oracle import Oracle
from robustdeq.models.predictor import DynamicPredictor, Pass
from robustdeq.models.straight import straight_through
from robustdeq.solve import GradientPolicy, Phantom, Unrolled

View = Literal["oblivious", "aware", "bpda"]
"""The pass that the attacker differentiates.

"oblivious" is the pass of the undefended model. "aware" is the defended pass, its states read at the received image.
"bpda" is the defended pass read at the purified image, which is differentiated as if it were the received one.
"""


@dataclass(frozen=True, eq=False)
class DynamicOracle(Oracle):
    """An oracle of a predictor whose passes can be looked into."""

    predictor: DynamicPredictor

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.predictor, DynamicPredictor):
            raise TypeError(
                f"{type(self).__name__} looks at states of a DEQ or of a defence around one, got "
                f"{type(self.predictor).__name__}; for a model without dynamics use robustdeq.attacks.Direct"
            )

    @property
    @override
    def target(self) -> Callable[[Tensor], Tensor]:
        return self.predictor


@dataclass(frozen=True, eq=False)
class StateOracle(DynamicOracle):
    """An oracle that estimates the gradient at a state of the solve; the state itself is a constant."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.view not in ("oblivious", "aware", "bpda"):
            raise ValueError(f"view must be 'oblivious', 'aware' or 'bpda', got {self.view!r}")
        self._check_state()

    def _check_state(self) -> None:
        """Called before each pass too, because a model's solver may be replaced."""
        steps = self.predictor.base.solver.max_steps
        if self.state is not None and not 1 <= self.state <= steps:
            raise ValueError(f"state counts from 1 to the solver's {steps} steps, got {self.state}")

    @property
    @abstractmethod
    def view(self) -> View:
        """The pass that the attacker differentiates."""

    @property
    @abstractmethod
    def state(self) -> int | None:
        """Number of the state, from 1; None for the state that the model reads out."""

    @property
    @abstractmethod
    def policy(self) -> GradientPolicy:
        """The gradient estimator."""

    @override
    def estimate(self, x: Tensor) -> Tensor:
        self._check_state()
        model = self.predictor.base
        walker = model if self.view == "oblivious" else self.predictor
        judge_last = self.policy.needs_inverse or (self.state is None and model.reads_residuals)
        with torch.no_grad():
            walked = walker.walk(x.detach(), steps=self.state, judge_last=judge_last)
        return self._connect(x, walked)

    @override
    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self._check_state()
        predictor, model = self.predictor, self.predictor.base
        # a defended pass may restart the solver's history; its inverse estimate then belongs to its last state only
        if predictor.defended and (self.view == "oblivious" or self.policy.needs_inverse):
            return super().estimate_and_deploy(x)
        read = predictor.reads_residuals or (self.state is None and model.reads_residuals)
        judge_last, last = self.policy.needs_inverse or read, predictor.early_state
        steps = None if last is None or self.state is None else max(last, self.state)
        with torch.no_grad():
            walked = predictor.walk(x.detach(), steps=steps, judge_last=judge_last)
            deployed = predictor.read_out(walked)
        return self._connect(x, walked), deployed

    def _connect(self, x: Tensor, walked: Pass) -> Tensor:
        model, solution = self.predictor.base, walked.solution
        state = model.read(solution, state=self.state)
        if self.view == "bpda":
            x = straight_through(walked.input_at(self.state or len(solution.residuals)), x)
        f, _ = model.begin(x)
        logits: Tensor = model.head(f.unpack(self.policy.connect(f, state)))
        return logits


@dataclass(frozen=True, eq=False)
class UnrolledState(StateOracle):
    """The intermediate-state attack (i, K_a, lambda): logits at y, unrolled from the detached state z^[i].

    Args:
        predictor: A DEQ, or a defence around one.
        state: Number i of the intermediate state, from 1.
        steps: Number K_a of unrolled steps.
        damping: Weight lambda of f in each step.
        form: "paper" takes K_a damped steps from z^[i]; "released" takes K_a damped steps from f(z^[i]).
        aware: Whether the state is taken from the defended pass instead of the undefended one.
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
    @override
    def view(self) -> View:
        return "aware" if self.aware else "oblivious"

    @property
    @override
    def policy(self) -> GradientPolicy:
        kind = Phantom if self.form == "released" else Unrolled
        return kind(steps=self.steps, damping=self.damping)


@dataclass(frozen=True, eq=False)
class Estimate(StateOracle):
    """The gradient of any policy (Phantom, Implicit, Neumann, OneStep, SharedInverse) at any state.

    Args:
        predictor: A DEQ, or a defence around one.
        gradient: Gradient policy; the model's own if None. Phantom(9, 0.5) at the final state is "ready-made".
        state: Number of the state where it starts; the state that the model reads out if None.
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
    @override
    def policy(self) -> GradientPolicy:
        return self.predictor.base.gradient if self.gradient is None else self.gradient


@dataclass(frozen=True, eq=False)
class Exact(DynamicOracle):
    """Autograd through every solver step of the deployed predictor.

    For an undefended predictor this is the exact gradient of the deployed logits. For a defended one it differentiates
    the defence's inner updates too, with the sign smoothed to tanh(g / (smoothing * mean |g|)). Each intervention is
    recomputed in the backward pass. The surrogate's values are then those of the smoothed defence.

    Args:
        predictor: A DEQ, or a defence around one.
        smoothing: Width of the smoothed sign. If None, the change that the defence makes to the input is treated as a
            constant (BPDA through the solver).
        oblivious: Whether to differentiate the undefended model instead.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    smoothing: float | None = 1.0
    oblivious: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothing is not None and not self.smoothing > 0:
            raise ValueError(f"smoothing must be positive, or None for a constant; got {self.smoothing}")

    @override
    def estimate(self, x: Tensor) -> Tensor:
        predictor = self.predictor.undefended() if self.oblivious else self.predictor
        steps, judge_last = predictor.early_state, predictor.reads_residuals
        walked = predictor.walk(x, steps=steps, judge_last=judge_last, exact=True, smoothing=self.smoothing)
        return predictor.read_out(walked, exact=True)

    @override
    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.predictor.defended:
            return super().estimate_and_deploy(x)
        surrogate = self.estimate(x)  # without a defence the surrogate is the deployed predictor
        return surrogate, surrogate.detach()


@dataclass(frozen=True, eq=False)
class WatchedStates(DynamicOracle):
    """Mean over the states that a defence looks at of log softmax h(f(z; x)).

    With the loss "confident" (the largest mean log-probability of a wrong class), an attack makes one wrong class
    likely at all of these states, so that the defence, which descends the entropy, works for the attacker.

    The states differ slightly from those the defence sees. The paper's variant looks at a state before it is solved
    again with the new input; here it is read afterwards. The released variant looks at the state that a segment hands
    on; here the segment's last state is read, which is the same where residuals fall.
    """

    @override
    def estimate(self, x: Tensor) -> Tensor:
        """Mean log-probabilities at the purified images, which count as the received ones plus a constant."""
        with torch.no_grad():
            walked = self.predictor.walk(x.detach(), steps=max(self.predictor.watched), judge_last=False)
        return self._mean(x, walked)

    @override
    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        predictor, last = self.predictor, self.predictor.early_state
        steps = None if last is None else max(last, *predictor.watched)
        with torch.no_grad():
            walked = predictor.walk(x.detach(), steps=steps, judge_last=predictor.reads_residuals)
            deployed = predictor.read_out(walked)
        return self._mean(x, walked), deployed

    def _mean(self, x: Tensor, walked: Pass) -> Tensor:
        model, states, trajectory = self.predictor.base, self.predictor.watched, walked.solution.trajectory
        assert trajectory is not None
        log_p = []
        for t in states:
            f, _ = model.begin(straight_through(walked.input_at(t), x))
            log_p.append(model.head(f.unpack(f(trajectory[t - 1]))).log_softmax(-1))
        return sum(log_p[1:], log_p[0]) / len(states)
