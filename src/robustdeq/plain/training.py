"""A training step as docs/method.md, section 3, reads: nothing is reused, and graphs are kept for parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from robustdeq.models import MDEQ
from robustdeq.plain.mdeq import CountedDynamics, unroll
from robustdeq.plain.solver import broyden
from robustdeq.training import Draws


def forward(
    model: MDEQ, x: Tensor, draws: Draws, name: str, *, random: str | None, max_steps: int = 8, unrolled: int = 5
) -> tuple[Tensor, CountedDynamics, Tensor]:
    """Logits through 1 + `unrolled` damped applications of f from the chosen state; with f and that state.

    `random` is None (all steps, lowest-residual iterate), "paper" (z^[t]) or "released" (the lowest of the first t).
    """
    u = model.encoder(x)
    masks = model.dynamics.draw_masks(u, draws.own_generator(f"dropout.{name}"))
    f = CountedDynamics(model, u, masks)
    steps = max_steps if random is None else draws.integer(f"depth.{name}", 1, max_steps)
    with torch.no_grad():
        solution = broyden(f, f.zero(), max_steps=steps)
    z = solution.states[-1] if random == "paper" else solution.value
    return model.head(f.split(unroll(f, z, unrolled, 0.5))), f, z


def jacobian_penalty(f: CountedDynamics, z: Tensor, draws: Draws, name: str) -> Tensor:
    """Mean over two probes of ||v^T J||^2 / numel(z)."""
    z = z.detach().requires_grad_()
    terms = []
    for k in range(2):
        (vj,) = torch.autograd.grad(f(z), z, draws.normal(f"probe.{name}.{k}", z), create_graph=True)
        terms.append((vj**2).sum() / z.numel())
    return (terms[0] + terms[1]) / 2


class CarriedPair:
    """State and adjoint that run along with an inner attack's images; z and a are None before the first step."""

    def __init__(self, *, first: int = 4, iterations: int = 1, damping: float = 0.5, extra: int = 2) -> None:
        self.first, self.iterations, self.damping, self.extra = first, iterations, damping, extra
        self.z: Tensor | None = None
        self.a: Tensor | None = None

    def gradient(
        self, model: MDEQ, x: Tensor, loss: Callable[[Tensor], Tensor], draws: Draws, *, random: str | None
    ) -> Tensor:
        """(df/dx)^T a after this step's iterations; `loss` is of the logits, summed over images."""
        iterations, x = self.iterations, x.detach().requires_grad_()
        f = CountedDynamics(model, model.encoder(x))
        if self.z is None:
            iterations += self.extra
            steps = self.first if random is None else draws.integer("depth.attack", 1, 8)
            with torch.no_grad():
                solution = broyden(f, f.zero(), max_steps=steps)
            self.z = solution.states[-1] if random == "paper" else solution.value
        for _ in range(iterations):
            z = self.z.detach().requires_grad_()
            y = f(z)
            (g,) = torch.autograd.grad(loss(model.head(f.split(y))), y, retain_graph=True)
            a = g if self.a is None else self.a
            (pulled,) = torch.autograd.grad(y, z, a, retain_graph=True)
            self.a = (1 - self.damping) * a + self.damping * (g + pulled)
            self.z = ((1 - self.damping) * z + self.damping * y).detach()
        (gradient,) = torch.autograd.grad(y, x, self.a)
        return gradient


def kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)) of each image."""
    p = F.softmax(reference, dim=1)
    return (p * (F.log_softmax(reference, dim=1) - F.log_softmax(logits, dim=1))).sum(1)


def climb(
    model: MDEQ,
    x: Tensor,
    start: Tensor,
    loss_at: Callable[[int], Callable[[Tensor], Tensor]],
    draws: Draws,
    *,
    eps: float,
    steps: int,
    step_size: float,
    random: str | None,
    carried: CarriedPair | None = None,
) -> Tensor:
    """Sign steps up a loss of the logits, summed over images, in eval mode; solved from 0 at every step, or carried."""
    training = model.training
    model.eval()
    x_adv = start
    for k in range(steps):
        x_adv, loss = x_adv.detach().requires_grad_(), loss_at(k)
        if carried is None:
            logits, _, _ = forward(model, x_adv, draws, f"attack.{k}", random=random)
            (gradient,) = torch.autograd.grad(loss(logits), x_adv)
        else:
            gradient = carried.gradient(model, x_adv, loss, draws, random=random)
        x_adv = x_adv + step_size * gradient.sign()
        x_adv = torch.min(torch.max(x_adv, x - eps), x + eps).clamp(0, 1)
    model.train(training)
    return x_adv.detach()


def pgd_at_images(model: MDEQ, x: Tensor, y: Tensor, draws: Draws, *, eps: float, **settings: Any) -> Tensor:
    """Uniform start, up the cross-entropy; the settings are those of `climb`."""
    offset = draws.per_image(
        "start", x, lambda like, g: (2 * torch.rand(like.shape, dtype=like.dtype, generator=g) - 1) * eps
    )
    loss = partial(F.cross_entropy, target=y, reduction="sum")
    return climb(model, x, (x + offset).clamp(0, 1), lambda k: loss, draws, eps=eps, **settings)


def trades_images(
    model: MDEQ, x: Tensor, draws: Draws, *, random: str | None, redrawn: bool = False, **settings: Any
) -> Tensor:
    """Gaussian start, up the KL divergence from the clean logits, which are computed at every step."""

    def divergence(k: int) -> Callable[[Tensor], Tensor]:
        name = f"target.{k}" if redrawn and random is not None else "target"
        clean = forward(model, x, draws, name, random=random)[0].detach()
        return lambda logits: kl(logits, clean).sum()

    return climb(model, x, x + 0.001 * draws.normal("start", x), divergence, draws, random=random, **settings)


def pgd_at_loss(
    model: MDEQ,
    x_adv: Tensor,
    y: Tensor,
    draws: Draws,
    *,
    random: str | None,
    jacobian: float | None = None,
    unrolled: int = 5,
) -> Tensor:
    """CE(x_adv), and the penalty if it has a weight."""
    steps = 8 if jacobian is None else 8 + draws.integer("depth.jitter", -2, 1)
    logits, f, z = forward(model, x_adv, draws, "loss", random=random, max_steps=steps, unrolled=unrolled)
    loss = F.cross_entropy(logits, y)
    if jacobian is not None:
        loss = loss + jacobian * jacobian_penalty(f, z, draws, "loss")
    return loss


def trades_loss(
    model: MDEQ,
    x: Tensor,
    x_adv: Tensor,
    y: Tensor,
    draws: Draws,
    *,
    random: str | None,
    beta: float = 6.0,
    jacobian: float | None = None,
    unrolled: int = 5,
) -> Tensor:
    """CE(clean) + beta KL(clean || adversarial), and the penalty of both passes if it has a weight."""
    steps = 8 if jacobian is None else 8 + draws.integer("depth.jitter", -2, 1)
    settings: dict[str, Any] = {"random": random, "max_steps": steps, "unrolled": unrolled}
    clean, f, z = forward(model, x, draws, "clean", **settings)
    adversarial, f_adv, z_adv = forward(model, x_adv, draws, "adversarial", **settings)
    loss = F.cross_entropy(clean, y) + beta * kl(adversarial, clean).mean()
    if jacobian is not None:
        loss = loss + jacobian * jacobian_penalty(f, z, draws, "clean")
        loss = loss + jacobian * jacobian_penalty(f_adv, z_adv, draws, "adversarial")
    return loss
