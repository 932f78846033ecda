"""Training objectives: standard, PGD-AT and TRADES, METHOD.md section 3."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from robustdeq.models import DEQ
from robustdeq.models.kernels import constant_weights
from robustdeq.models.modes import attacking
from robustdeq.solve import jacobian_penalty
from robustdeq.threat import Linf, Threat, cross_entropy, kl
from robustdeq.training.draws import Draws
from robustdeq.training.states import Final, StatePolicy


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The loss of a step and its parts, means over the batch."""

    total: Tensor
    parts: dict[str, Tensor]
    logits: Tensor
    """Of the first forward of the loss, for the training accuracy."""


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The Jacobian penalty of a step that has one."""

    weight: float
    probes: int = 2


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A loss for (model, images, labels); everything random comes from the draws."""

    states: StatePolicy = field(default_factory=Final)

    @abstractmethod
    def perturb(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        """The images the loss is taken at."""

    @abstractmethod
    def losses(
        self, model: nn.Module, x: Tensor, x_adv: Tensor, y: Tensor, draws: Draws, penalty: Penalty | None = None
    ) -> Losses:
        """The loss, in the model's current mode."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws, penalty: Penalty | None = None) -> Losses:
        """Attack, then the loss."""
        with constant_weights(model):
            return self.losses(model, x, self.perturb(model, x, y, draws), y, draws, penalty)

    def forward(
        self, model: nn.Module, x: Tensor, draws: Draws, name: str, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the forward of this name, at a state that the policy chooses, and its Jacobian penalty."""
        if not isinstance(model, DEQ):
            return model(x), None
        steps = model.solver.max_steps
        if penalty is not None:  # on these steps the depth itself is jittered, once for both forwards
            steps = max(1, steps + draws.integer("depth.jitter", -2, 1))
        depth = self.states.depth(steps, draws, name)
        result = model.run(
            x,
            max_steps=depth.max_steps,
            readout=depth.readout,
            generator=draws.own_generator(f"dropout.{name}"),
        )
        if penalty is None:
            return result.logits, None
        probes = torch.stack([draws.normal(f"probe.{name}.{k}", result.state.z) for k in range(penalty.probes)])
        return result.logits, jacobian_penalty(result.f, result.state.z, probes=probes)


@dataclass(frozen=True, kw_only=True)
class Standard(Objective):
    """Cross-entropy on clean images."""

    def perturb(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        """Nothing."""
        return x

    def losses(
        self, model: nn.Module, x: Tensor, x_adv: Tensor, y: Tensor, draws: Draws, penalty: Penalty | None = None
    ) -> Losses:
        """CE(x)."""
        logits, jacobian = self.forward(model, x_adv, draws, "loss", penalty)
        return _sum({"ce": cross_entropy(logits, y).mean()}, {"ce": 1.0}, [jacobian], penalty, logits)


@dataclass(frozen=True, kw_only=True)
class PGDAT(Standard):
    """CE at the end of a PGD attack on CE (Madry et al. 2018)."""

    threat: Threat = field(default_factory=lambda: Linf(8 / 255))
    steps: int = 10
    step_size: float = 2 / 255

    def perturb(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        """Uniform start, `steps` sign steps up the cross-entropy."""

        def loss(x_adv: Tensor, step: int) -> Tensor:
            return cross_entropy(self.forward(model, x_adv, draws, f"attack.{step}")[0], y).sum()

        with _searching(model):
            start = (x + draws.per_image("start", x, self.threat.random_offset)).clamp(0, 1)
            return climb(loss, start, x, self.threat, self.steps, self.step_size)


@dataclass(frozen=True, kw_only=True)
class TRADES(Objective):
    """CE(clean) + beta KL(clean || adversarial), both passes differentiated (Zhang et al. 2019)."""

    beta: float = 6.0
    """1 / lambda of the paper."""
    threat: Threat = field(default_factory=lambda: Linf(8 / 255))
    steps: int = 10
    step_size: float = 2 / 255
    clean_target: Literal["once", "redrawn"] = "once"
    """The clean logits that the inner attack climbs away from: drawn once per batch, or (as released) with a new random
    depth at every inner step."""

    def __post_init__(self) -> None:
        if self.clean_target not in ("once", "redrawn"):
            raise ValueError(f"clean_target must be 'once' or 'redrawn', got {self.clean_target!r}")

    def perturb(self, model: nn.Module, x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        """Gaussian start, `steps` sign steps up the KL divergence."""
        redrawn = self.clean_target == "redrawn" and self.states.varies
        with _searching(model):
            with torch.no_grad():
                once = None if redrawn else self.forward(model, x, draws, "target")[0]

            def loss(x_adv: Tensor, step: int) -> Tensor:
                if once is not None:
                    target = once
                else:
                    with torch.no_grad():
                        target = self.forward(model, x, draws, f"target.{step}")[0]
                return kl(self.forward(model, x_adv, draws, f"attack.{step}")[0], target).sum()

            # not clamped: the first step projects
            start = x + 0.001 * draws.normal("start", x)
            return climb(loss, start, x, self.threat, self.steps, self.step_size)

    def losses(
        self, model: nn.Module, x: Tensor, x_adv: Tensor, y: Tensor, draws: Draws, penalty: Penalty | None = None
    ) -> Losses:
        """Two separate forwards."""
        clean, clean_jacobian = self.forward(model, x, draws, "clean", penalty)
        adversarial, adversarial_jacobian = self.forward(model, x_adv, draws, "adversarial", penalty)
        parts = {"ce": cross_entropy(clean, y).mean(), "kl": kl(adversarial, clean).mean()}
        return _sum(parts, {"ce": 1.0, "kl": self.beta}, [clean_jacobian, adversarial_jacobian], penalty, clean)


@contextmanager
def _searching(model: nn.Module) -> Iterator[None]:
    """Eval mode, only images are differentiated, and what depends on the weights alone is computed once."""
    with attacking(model):
        yield


def climb(
    loss: Callable[[Tensor, int], Tensor], start: Tensor, origin: Tensor, threat: Threat, steps: int, size: float
) -> Tensor:
    """`steps` projected ascent steps; the loss is summed over images, so each follows its own gradient."""
    x = start.detach()
    for step in range(steps):
        x.requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(loss(x, step), x)
        x = threat.project(x.detach() + size * threat.ascent(gradient), origin)
    return x.detach()


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
