"""Training objectives: standard, PGD-AT and TRADES (docs/method.md, section 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.attacks.ascent import climb
from robustdeq.models import DEQ
from robustdeq.models.kernels import constant_weights
from robustdeq.models.modes import attacking
from robustdeq.solve import GradientPolicy, Phantom, jacobian_penalty
from robustdeq.threat import Linf, Threat, cross_entropy, kl
from robustdeq.training.draws import Draws
from robustdeq.training.forward import CarriedState, continued_pass, logits_of, solved_pass
from robustdeq.training.inner import Carried, CarriedGradient, Cold, InnerPolicy, Loss
from robustdeq.training.states import Final, StatePolicy


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The loss of a step and its parts, means over the batch."""

    total: Tensor
    parts: dict[str, Tensor]
    logits: Tensor
    """Logits of the first forward pass of the loss, for the training accuracy."""


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The Jacobian penalty of a step that has one."""

    weight: float
    probes: int = 2


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A loss for (model, images, labels); everything random comes from the draws."""

    states: StatePolicy = field(default_factory=Final)
    """The state that each forward pass reads."""
    label_smoothing: float = 0.0
    """Share of the cross-entropy's target that is spread evenly over all classes; inner attacks do without."""
    unroll: int | None = None
    """Phantom steps of the loss's own passes; the model's own number if not given. Inner attacks keep the model's."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if self.unroll is not None and self.unroll < 0:
            raise ValueError(f"unroll must be >= 0, got {self.unroll}")

    @abstractmethod
    def search(
        self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, *, start: Tensor | None = None
    ) -> tuple[Tensor, CarriedState | None]:
        """The images that the loss is taken at, and the state that the inner attack hands on, if it does."""

    def perturb(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, *, start: Tensor | None = None) -> Tensor:
        """The images that the loss is taken at; the attack starts at `start` instead of drawing, if that is given."""
        return self.search(model, x, y, draws, start=start)[0]

    @abstractmethod
    def losses(
        self,
        model: nn.Module,
        x: Tensor,
        x_adv: Tensor,
        y: Tensor,
        draws: Draws,
        penalty: Penalty | None = None,
        carried: CarriedState | None = None,
    ) -> Losses:
        """The loss in the model's current mode; the pass at x_adv starts from the carried state, if there is one."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, penalty: Penalty | None = None) -> Losses:
        """Attack, then the loss."""
        with constant_weights(model):
            x_adv, carried = self.search(model, x, y, draws)
            return self.losses(model, x, x_adv, y, draws, penalty, carried)

    def forward(
        self,
        model: nn.Module,
        x: Tensor,
        draws: Draws,
        name: str,
        penalty: Penalty | None = None,
        carried: CarriedState | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the loss's pass of this name, and its Jacobian penalty."""
        if not isinstance(model, DEQ):
            return model(x), None
        gradient = self._gradient(model)
        if penalty is None:
            if carried is not None:
                return continued_pass(model, x, carried, draws, name, gradient), None
            return solved_pass(model, x, self.states, draws, name, gradient=gradient).logits, None
        # on these steps the depth itself is jittered, once for both passes
        steps = max(1, model.solver.max_steps + draws.integer("depth.jitter", -2, 1))
        result = solved_pass(model, x, self.states, draws, name, steps=steps, gradient=gradient)
        probes = torch.stack([draws.normal(f"probe.{name}.{k}", result.state.z) for k in range(penalty.probes)])
        return result.logits, jacobian_penalty(result.f, result.state.z, probes=probes)

    def _gradient(self, model: DEQ) -> GradientPolicy:
        if self.unroll is None:
            return model.gradient
        if not isinstance(model.gradient, Phantom):
            raise ValueError(f"unroll is the number of Phantom steps, but the model's gradient is {model.gradient}")
        return replace(model.gradient, steps=self.unroll)

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        loss = cross_entropy(logits, y)
        if self.label_smoothing:
            loss = torch.lerp(loss, -logits.to(loss.dtype).log_softmax(1).mean(1), self.label_smoothing)
        return loss.mean()


@dataclass(frozen=True, kw_only=True)
class Standard(Objective):
    """Cross-entropy on clean images."""

    @override
    def search(
        self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, *, start: Tensor | None = None
    ) -> tuple[Tensor, CarriedState | None]:
        return x, None

    @override
    def losses(
        self,
        model: nn.Module,
        x: Tensor,
        x_adv: Tensor,
        y: Tensor,
        draws: Draws,
        penalty: Penalty | None = None,
        carried: CarriedState | None = None,
    ) -> Losses:
        logits, jacobian = self.forward(model, x_adv, draws, "loss", penalty, carried)
        return _sum({"ce": self._cross_entropy(logits, y)}, {"ce": 1.0}, [jacobian], penalty, logits)


@dataclass(frozen=True, kw_only=True)
class Adversarial(Objective):
    """An objective with an inner attack: `steps` projected ascent steps up a loss of its own."""

    threat: Threat = field(default_factory=lambda: Linf(8 / 255))
    steps: int = 10
    step_size: float = 2 / 255
    inner: InnerPolicy = field(default_factory=Cold)
    """Where the inner attack takes its gradients from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.inner, Carried) and self.inner.handed_on and self.states.varies:
            raise ValueError("an inner attack hands its state on to passes that read the final state, not a random one")

    @abstractmethod
    def start(self, x: Tensor, draws: Draws) -> Tensor:
        """The images at which the attack starts."""

    @abstractmethod
    def climbed(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Loss:
        """The loss that the attack climbs, a function of the logits."""

    @override
    def search(
        self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, *, start: Tensor | None = None
    ) -> tuple[Tensor, CarriedState | None]:
        with attacking(model):
            gradient = self.inner.begin(model, self.climbed(model, x, y, draws), self.states, draws)
            start = self.start(x, draws) if start is None else start
            x_adv = climb(gradient, start, x, self.threat, steps=self.steps, step_size=self.step_size)
        return x_adv, gradient.handed_on if isinstance(gradient, CarriedGradient) else None


@dataclass(frozen=True, kw_only=True)
class PGDAT(Adversarial, Standard):
    """CE at the end of a PGD attack on CE, which starts at a random point of the ball (Madry et al. 2018)."""

    @override
    def start(self, x: Tensor, draws: Draws) -> Tensor:
        return (x + draws.per_image("start", x, self.threat.random_offset)).clamp(0, 1)

    @override
    def climbed(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Loss:
        return lambda logits, step: cross_entropy(logits, y)


@dataclass(frozen=True, kw_only=True)
class TRADES(Adversarial):
    """CE(clean) + beta KL(clean || adversarial), two passes, both differentiated (Zhang et al. 2019).

    The attack climbs the KL divergence from a point beside the image.
    """

    beta: float = 6.0
    """1 / lambda of the paper."""
    clean_target: Literal["once", "redrawn"] = "once"
    """The clean logits that the inner attack climbs away from: drawn once per batch, or (as released) with a new random
    depth at every inner step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clean_target not in ("once", "redrawn"):
            raise ValueError(f"clean_target must be 'once' or 'redrawn', got {self.clean_target!r}")

    @override
    def start(self, x: Tensor, draws: Draws) -> Tensor:
        return x + 0.001 * draws.normal("start", x)  # not clamped: the first step projects

    @override
    def climbed(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Loss:
        redrawn = self.clean_target == "redrawn" and self.states.varies

        @lru_cache(maxsize=1)
        @torch.no_grad()
        def target(name: str) -> Tensor:
            return logits_of(model, x, self.states, draws, name)

        return lambda logits, step: kl(logits, target(f"target.{step}" if redrawn else "target"))

    @override
    def losses(
        self,
        model: nn.Module,
        x: Tensor,
        x_adv: Tensor,
        y: Tensor,
        draws: Draws,
        penalty: Penalty | None = None,
        carried: CarriedState | None = None,
    ) -> Losses:
        clean, clean_jacobian = self.forward(model, x, draws, "clean", penalty)
        adversarial, adversarial_jacobian = self.forward(model, x_adv, draws, "adversarial", penalty, carried)
        parts = {"ce": self._cross_entropy(clean, y), "kl": kl(adversarial, clean).mean()}
        return _sum(parts, {"ce": 1.0, "kl": self.beta}, [clean_jacobian, adversarial_jacobian], penalty, clean)


def _sum(
    parts: dict[str, Tensor],
    weights: dict[str, float],
    jacobians: list[Tensor | None],
    penalty: Penalty | None,
    logits: Tensor,
) -> Losses:
    total = sum((weights[name] * part for name, part in parts.items()), torch.zeros_like(parts["ce"]))
    terms = [j for j in jacobians if j is not None]
    if penalty is not None and terms:
        jacobian = torch.stack(terms).sum()
        total = total + penalty.weight * jacobian
        parts = {**parts, "jacobian": jacobian}
    return Losses(total=total, parts={k: v.detach() for k, v in parts.items()}, logits=logits.detach())
