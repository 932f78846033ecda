"""The 144 intermediate-state attacks as docs/method.md, section 5 writes them: no image leaves, N steps always."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from robustdeq.models import MDEQ
from robustdeq.plain.mdeq import CountedDynamics, solve


def deployed_logits(model: MDEQ, x: Tensor, *, max_steps: int = 8) -> Tensor:
    """h(z^[N])."""
    with torch.no_grad():
        f = CountedDynamics(model, model.encoder(x))
        return model.head(f.split(solve(f, max_steps=max_steps).states[-1]))


def surrogate_logits(model: MDEQ, x: Tensor, state: int, steps: int, damping: float, *, max_steps: int = 8) -> Tensor:
    """The head after `steps` damped applications of f from the detached z^[state] (the paper's form)."""
    f = CountedDynamics(model, model.encoder(x))
    y = solve(f, max_steps=max_steps).states[state - 1]
    for _ in range(steps):
        y = (1 - damping) * y + damping * f(y)
    return model.head(f.split(y))


def attack(
    model: MDEQ,
    x: Tensor,
    y: Tensor,
    start: Tensor,
    state: int,
    steps: int,
    damping: float,
    *,
    eps: float,
    step_size: float,
    iterations: int = 10,
    max_steps: int = 8,
) -> tuple[Tensor, Tensor, Tensor]:
    """PGD from a given start: the last iterates, and whether clean and attacked images are classified correctly."""
    clean = deployed_logits(model, x, max_steps=max_steps).argmax(1) == y
    x_adv = start
    for _ in range(iterations):
        x_adv = x_adv.detach().requires_grad_()
        logits = surrogate_logits(model, x_adv, state, steps, damping, max_steps=max_steps)
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, y), x_adv)
        x_adv = x_adv + step_size * gradient.sign()
        x_adv = torch.min(torch.max(x_adv, x - eps), x + eps).clamp(0, 1)
    x_adv = x_adv.detach()
    return x_adv, clean, deployed_logits(model, x_adv, max_steps=max_steps).argmax(1) == y
