"""Projected gradient ascent, shared by PGD, adversarial training and validation; and the best of several runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robustdeq.attacks.task import Task
from robustdeq.threat import Threat

Gradient = Callable[[Tensor, int], Tensor]
"""(images, number of the step from 0) -> the gradient of each image's own loss, shaped like the images."""


def climb(
    gradient: Gradient, start: Tensor, origin: Tensor, threat: Threat, *, steps: int, step_size: float | None = None
) -> Tensor:
    """Take `steps` projected ascent steps and return the last iterates.

    Args:
        gradient: Gradient of the loss per image; `gradient_of` makes one from a differentiable loss.
        start: Images to start from; points outside the ball are projected by the first step.
        origin: Clean images, the centres of the balls.
        threat: The ball, which also turns a gradient into a direction.
        steps: Number of steps.
        step_size: Length of a step in the threat's norm; a quarter of eps if None.
    """
    x = start.detach()
    for step in range(steps):
        x = ascend(x, gradient(x, step), origin, threat, step_size)
    return x


def ascend(x: Tensor, gradient: Tensor, origin: Tensor, threat: Threat, step_size: float | None = None) -> Tensor:
    """One step: project(x + step_size * ascent(gradient)); see `climb` for the arguments."""
    size = threat.eps / 4 if step_size is None else step_size
    return threat.project(x.detach() + size * threat.ascent(gradient), origin)


def gradient_of(loss: Callable[[Tensor, int], Tensor]) -> Gradient:
    """The gradient function of a loss, given per image or summed, by automatic differentiation."""

    def gradient(x: Tensor, step: int) -> Tensor:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return input_gradient(loss(x, step), x)

    return gradient


def input_gradient(loss: Tensor, x: Tensor) -> Tensor:
    """Gradient of the summed loss in x. Non-finite entries become zero, so that no image follows them."""
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return torch.where(gradient.isfinite(), gradient, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """The end of a run: images, and per image the loss and whether the deployed predictor was fooled."""

    images: Tensor
    loss: Tensor
    fooled: Tensor


def best_of(task: Task, runs: int, run: Callable[[Tensor, int], Run]) -> Tensor:
    """Per image, the first run that fooled the predictor, or else the one of highest loss.

    Args:
        task: Images to attack.
        runs: Largest number of runs; an image takes no part in the runs after its first success.
        run: Function (rows of the task, number of the run from 0) -> the run's result on these rows.
    """
    images, rows = task.x.clone(), task.all_rows
    highest = torch.full((len(task),), -torch.inf, dtype=torch.float64, device=task.x.device)
    for number in range(runs):
        task.begin_run(rows)
        result = run(rows, number)
        loss = result.loss.double().nan_to_num(nan=-torch.inf)
        better = result.fooled | (loss > highest[rows]) | (number == 0)
        images[rows[better]] = result.images[better]
        highest[rows[better]] = loss[better]
        rows = rows[~result.fooled]
        if len(rows) == 0:
            break
    return images
