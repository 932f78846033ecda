"""The 144 intermediate-state attacks as docs/method.md, section 5 writes them: no image leaves, N steps always."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from robustdeq.models import MDEQ
from robustdeq.plain.mdeq import CountedDynamics, solve

ITERATIONS = 10


def deployed_logits(model: MDEQ, x: Tensor) -> Tensor:
    """Logits h(z^[N]) of the deployed state."""
    with torch.no_grad():
        f = CountedDynamics(model, model.encoder(x))
        return model.head(f.split(solve(f, max_steps=model.solver.max_steps).states[-1]))


def surrogate_logits(model: MDEQ, x: Tensor, state: int, steps: int, damping: float) -> Tensor:
    """The head after `steps` damped applications of f from the detached z^[state] (the paper's form)."""
    f = CountedDynamics(model, model.encoder(x))
    y = solve(f, max_steps=model.solver.max_steps).states[state - 1]
    for _ in range(steps):
        y = (1 - damping) * y + damping * f(y)
    return model.head(f.split(y))


def attack(
    model: MDEQ, x: Tensor, y: Tensor, start: Tensor, state: int, steps: int, damping: float, *, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """PGD from a given start, with steps of eps / 4.

    Returns the last iterates, and whether clean and attacked images are classified correctly.
    """
    clean = deployed_logits(model, x).argmax(1) == y
    x_adv = start
    for _ in range(ITERATIONS):
        x_adv = x_adv.detach().requires_grad_()
        logits = surrogate_logits(model, x_adv, state, steps, damping)
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, y), x_adv)
        x_adv = x_adv + eps / 4 * gradient.sign()
        x_adv = torch.min(torch.max(x_adv, x - eps), x + eps).clamp(0, 1)
    x_adv = x_adv.detach()
    return x_adv, clean, deployed_logits(model, x_adv).argmax(1) == y
