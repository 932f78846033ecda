"""Inner attacks: where the attack inside a training step takes its gradients from (docs/method.md, section 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.attacks.ascent import Gradient, gradient_of
from robustdeq.models import DEQ
from robustdeq.models.dynamics import BoundDynamics
from robustdeq.training.draws import Draws
from robustdeq.training.forward import CarriedState, logits_of
from robustdeq.training.states import StatePolicy

Loss = Callable[[Tensor, int], Tensor]
"""(logits, inner step) -> the loss of each image."""


@dataclass(frozen=True)
class InnerPolicy(ABC):
    """Chooses how an inner attack computes its gradients; a new one begins with every batch."""

    @abstractmethod
    def begin(self, model: nn.Module, loss: Loss, states: StatePolicy, draws: Draws) -> Gradient:
        """The gradient for one attack on one batch, asked for at every inner step; the model is in eval mode."""


@dataclass(frozen=True)
class Cold(InnerPolicy):
    """Every inner step solves from z^[0] and differentiates by the model's own gradient policy (the paper's attack)."""

    @override
    def begin(self, model: nn.Module, loss: Loss, states: StatePolicy, draws: Draws) -> Gradient:
        return gradient_of(lambda x, step: loss(logits_of(model, x, states, draws, f"attack.{step}"), step))


@dataclass(frozen=True)
class Carried(InnerPolicy):
    """State and adjoint are carried from inner step to inner step, although x moves in between.

    The first inner step solves `first` solver steps from z^[0] to get z; with random states it is Uniform{1..N} steps,
    drawn once per batch. Then every inner step makes `iterations` times, with y = f(z; x), g = dL/dy of the loss at
    head(y), J_z = df/dz at (z, x) and d the damping (the weight of f):

        a <- (1 - d) a + d (g + J_z^T a)        (a = g at the very beginning)
        z <- (1 - d) z + d y

    The step's gradient is (df/dx)^T a with the a just updated and df/dx at the (z, x) of the last iteration. Where z
    and a have converged this is the implicit gradient. All of it is per image. An iteration costs one f, the head and
    its backward pass, and one backward pass through f to z; the last one of a step also a backward pass to x, through
    the part of f behind the injection (`BoundDynamics.inject`) and the encoder.

    Args:
        first: Solver steps at the first inner step.
        iterations: Iterations of state and adjoint per inner step.
        damping: The weight d of f, in (0, 1].
        extra: Additional iterations at the first inner step, at which a starts from g alone.
        handed_on: Whether the loss's own adversarial pass starts from the attack's last state and takes `first` solver
            steps, instead of N steps from z^[0]. Steps with a Jacobian penalty always start from z^[0].
    """

    first: int = 4
    iterations: int = 1
    damping: float = 0.5
    extra: int = 2
    handed_on: bool = False

    def __post_init__(self) -> None:
        for name, low in (("first", 1), ("iterations", 1), ("extra", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if not 0 < self.damping <= 1:
            raise ValueError(f"damping is the weight of f and must lie in (0, 1], got {self.damping}")

    @override
    def begin(self, model: nn.Module, loss: Loss, states: StatePolicy, draws: Draws) -> Gradient:
        if not isinstance(model, DEQ):
            raise TypeError(
                f"{type(model).__name__} is not a DEQ: it has no state that an inner attack could carry; "
                "use the inner attack Cold (objective.inner: cold)"
            )
        return CarriedGradient(self, model, loss, states, draws)


class CarriedGradient:
    """The gradient of one attack on one batch, by the formulas of `Carried`."""

    def __init__(self, policy: Carried, model: DEQ, loss: Loss, states: StatePolicy, draws: Draws) -> None:
        self.policy, self.model, self.loss, self.states, self.draws = policy, model, loss, states, draws
        self.z: Tensor | None = None
        """The carried states."""
        self.a: Tensor | None = None
        """The carried adjoints, shaped like z."""

    @property
    def handed_on(self) -> CarriedState | None:
        """The state for the loss's own pass to start from, if the policy hands one on."""
        if self.z is None or not self.policy.handed_on:
            return None
        return CarriedState(self.z, self.policy.first)

    def __call__(self, x: Tensor, step: int) -> Tensor:
        """The gradient in the pixels of each image's loss, zero where it is not finite."""
        x = x.detach().requires_grad_()
        iterations = self.policy.iterations
        with torch.enable_grad():
            f, z0 = self.model.begin(x)
            if self.z is None:
                self.z = self._first_state(f, z0)
                iterations += self.policy.extra
            for _ in range(iterations - 1):
                self._iterate(f, self.z, step)
            y = self._iterate(f, self.z, step, keep_graph=True)
            # only what lies between y and x is walked through: not the part of f before the injection
            gradient = _pulled_back(y, x, self.a)
        return torch.where(gradient.isfinite(), gradient, 0)

    @torch.no_grad()
    def _first_state(self, f: BoundDynamics, z0: Tensor) -> Tensor:
        most = self.model.solver.max_steps if self.states.varies else self.policy.first
        depth = self.states.depth(most, self.draws, "attack")
        last = depth.readout == "last"
        solution = self.model.solve(f, z0, max_steps=depth.max_steps, record=False, judge_last=not last)
        return self.model.read(solution, depth.readout).z.detach()

    def _iterate(self, f: BoundDynamics, z: Tensor, step: int, *, keep_graph: bool = False) -> Tensor:
        """One iteration of state and adjoint; returns y with its graph."""
        z = z.detach().requires_grad_()
        y = f(z).to(z.dtype)  # f may compute in half precision, the state does not
        read = y.detach().requires_grad_()
        loss = self.loss(self.model.head(f.unpack(read)), step).sum()
        g = torch.autograd.grad(loss, read)[0]
        a = g if self.a is None else self.a
        self.a = torch.lerp(a, g + _pulled_back(y, z, a, keep_graph=keep_graph), self.policy.damping)
        self.z = torch.lerp(z.detach(), read.detach(), self.policy.damping)
        return y


def _pulled_back(y: Tensor, argument: Tensor, a: Tensor | None, *, keep_graph: bool = False) -> Tensor:
    """(dy/dargument)^T a, zero if y does not depend on the argument."""
    return torch.autograd.grad(y, argument, a, retain_graph=keep_graph, allow_unused=True, materialize_grads=True)[0]
