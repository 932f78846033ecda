"""Training objectives: standard, PGD-AT and TRADES (docs/method.md, section 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

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

PROBES = 2
"""Random vectors by which the Jacobian penalty is estimated."""


class Losses(NamedTuple):
    """The loss of a step and its parts, means over the batch."""

    total: Tensor
    parts: dict[str, Tensor]
    logits: Tensor
    """Logits of the first forward pass of the loss, for the training accuracy."""


class Attacked(NamedTuple):
    """The images that the loss is taken at."""

    images: Tensor
    state: CarriedState | None = None
    """The state that the inner attack hands on to the loss's own pass, if it does."""


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
    def search(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, start: Tensor | None = None) -> Attacked:
        """The inner attack; it starts at `start` instead of drawing, if that is given."""

    @abstractmethod
    def losses(
        self, model: nn.Module, x: Tensor, y: Tensor, attacked: Attacked, draws: Draws, jacobian: float = 0.0
    ) -> Losses:
        """The loss in the model's current mode, with a Jacobian penalty of this weight."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, jacobian: float = 0.0) -> Losses:
        """Attack, then the loss, with a Jacobian penalty of this weight."""
        with constant_weights(model):
            return self.losses(model, x, y, self.search(model, x, y, draws), draws, jacobian)

    def forward(
        self, model: nn.Module, attacked: Attacked, draws: Draws, name: str, *, penalised: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits of the loss's pass of this name, and its Jacobian penalty, if it has one.

        The pass starts from the state that the inner attack handed on, if there is one and no penalty.
        """
        x = attacked.images
        if not isinstance(model, DEQ):
            return model(x), []
        gradient = self._gradient(model)
        if not penalised:
            if attacked.state is not None:
                return continued_pass(model, x, attacked.state, draws, name, gradient), []
            return solved_pass(model, x, self.states, draws, name, gradient=gradient).logits, []
        # on these steps the depth itself is jittered, once for both passes
        steps = max(1, model.solver.max_steps + draws.integer("depth.jitter", -2, 1))
        result = solved_pass(model, x, self.states, draws, name, steps=steps, gradient=gradient)
        probes = torch.stack([draws.normal(f"probe.{name}.{k}", result.state.z) for k in range(PROBES)])
        return result.logits, [jacobian_penalty(result.f, result.state.z, probes=probes)]

    def _gradient(self, model: DEQ) -> GradientPolicy:
        if self.unroll is None:
            return model.gradient
        if not isinstance(model.gradient, Phantom):
            raise ValueError(
                f"unroll is the number of Phantom steps, but the model's gradient is {model.gradient}; "
                "leave it out, or set objective.unroll to null"
            )
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
    def search(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, start: Tensor | None = None) -> Attacked:
        return Attacked(x)

    @override
    def losses(
        self, model: nn.Module, x: Tensor, y: Tensor, attacked: Attacked, draws: Draws, jacobian: float = 0.0
    ) -> Losses:
        logits, penalties = self.forward(model, attacked, draws, "loss", penalised=jacobian > 0)
        ce = self._cross_entropy(logits, y)
        return _with_penalties(ce, {"ce": ce}, jacobian, penalties, logits)


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
    def search(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, start: Tensor | None = None) -> Attacked:
        with attacking(model):
            gradient = self.inner.begin(model, self.climbed(model, x, y, draws), self.states, draws)
            start = self.start(x, draws) if start is None else start
            x_adv = climb(gradient, start, x, self.threat, steps=self.steps, step_size=self.step_size)
        return Attacked(x_adv, gradient.handed_on if isinstance(gradient, CarriedGradient) else None)


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
        self, model: nn.Module, x: Tensor, y: Tensor, attacked: Attacked, draws: Draws, jacobian: float = 0.0
    ) -> Losses:
        clean, penalties = self.forward(model, Attacked(x), draws, "clean", penalised=jacobian > 0)
        adversarial, more = self.forward(model, attacked, draws, "adversarial", penalised=jacobian > 0)
        ce, divergence = self._cross_entropy(clean, y), kl(adversarial, clean).mean()
        total = ce + self.beta * divergence
        return _with_penalties(total, {"ce": ce, "kl": divergence}, jacobian, penalties + more, clean)


def _with_penalties(
    total: Tensor, parts: dict[str, Tensor], weight: float, penalties: list[Tensor], logits: Tensor
) -> Losses:
    if penalties:
        parts["jacobian"] = torch.stack(penalties).sum()
        total = total + weight * parts["jacobian"]
    return Losses(total, {name: part.detach() for name, part in parts.items()}, logits.detach())
