"""Projected gradient ascent with fixed steps (Madry et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from robustdeq.attacks.base import Attack
from robustdeq.attacks.runs import Run, best_of
from robustdeq.attacks.task import Task, fooled, input_gradient
from robustdeq.threat import confident, cross_entropy, dlr, kl, margin

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, rows of the task) -> a loss per image."""


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """x <- project(x + step_size * ascent(grad loss)), `steps` times; every image moves at every step.

    The result is the last iterate. The oracle's own values and gradients are all it needs: with `every_image=True` and
    one run the deployed predictor is asked only to judge the result. Of several runs an image keeps the first that
    fooled the deployed predictor, else the one of highest loss.
    """

    steps: int = 10
    step_size: float = 2 / 255
    loss: Literal["ce", "margin", "dlr", "kl", "confident"] = "ce"
    """"kl": the divergence from the oracle's logits on the clean image; its gradient vanishes there.

    "confident": the log-probability of the best wrong class, for oracles that show log-probabilities.
    """
    restarts: int = 1
    """How many runs; a given start is that of the first."""
    random_start: bool = True
    """False: start at the clean image unless a start is given."""

    def __post_init__(self) -> None:
        if self.loss not in ("ce", "margin", "dlr", "kl", "confident"):
            raise ValueError(f"loss must be 'ce', 'margin', 'dlr', 'kl' or 'confident', got {self.loss!r}")
        if self.steps < 1 or self.restarts < 1:
            raise ValueError(f"steps and restarts must be at least 1, got {self.steps} and {self.restarts}")
        if not self.step_size > 0 and not self.step_size == self.threat.eps == 0:
            raise ValueError(f"step_size must be positive, got {self.step_size}")
        if self.restarts > 1 and not self.random_start:
            raise ValueError("several restarts from the clean image are all the same: set random_start=True")

    @property
    def name(self) -> str:
        """PGD-10, PGD-10-margin."""
        return f"PGD-{self.steps}" + ("" if self.loss == "ce" else f"-{self.loss}")

    @property
    def least_classes(self) -> int:
        """As the loss."""
        return 3 if self.loss == "dlr" else 2

    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        """The given start, a random point of the ball, or the clean image."""
        if not self.random_start and task.start is None:
            return task.x[rows].clone()
        return super().begin(task, rows, run)

    def search(self, task: Task) -> Tensor:
        """One run, or the best of several."""
        loss = self._loss(task)
        if self.restarts == 1:
            return self._climb(task, task.all_rows, 0, loss)
        return best_of(task, self.restarts, lambda rows, run: self._judged(task, rows, run, loss))

    def _loss(self, task: Task) -> Loss:
        if self.loss == "kl":
            with torch.no_grad():
                reference = task.seen(task.x, task.all_rows).detach()
            return lambda logits, rows: kl(logits, reference[rows])
        formula = {"ce": cross_entropy, "margin": margin, "dlr": dlr, "confident": confident}[self.loss]
        return lambda logits, rows: formula(logits, task.y[rows])

    def _climb(self, task: Task, rows: Tensor, run: int, loss: Loss) -> Tensor:
        """The last iterates; without `every_image`, those that fool the deployed predictor are left where they do."""
        result, x = task.x[rows].clone(), self.begin(task, rows, run)
        active = torch.arange(len(rows), device=x.device)
        for _ in range(self.steps):
            x = x.detach().requires_grad_()
            here = rows[active]
            if task.every_image:
                logits = task.seen(x, here)
                staying = torch.ones_like(active, dtype=torch.bool)
            else:
                logits, deployed = task.seen_and_deployed(x, here)
                staying = ~fooled(deployed, task.y[here])
                result[active[~staying]] = x.detach()[~staying]
                if not staying.any():
                    return result
            gradient = input_gradient(loss(logits, here)[staying], x)[staying]
            active, x = active[staying], x.detach()[staying]
            x = self.threat.project(x + self.step_size * self.threat.ascent(gradient), task.x[rows[active]])
        result[active] = x
        return result

    def _judged(self, task: Task, rows: Tensor, run: int, loss: Loss) -> Run:
        images = self._climb(task, rows, run, loss)
        with torch.no_grad():
            logits, deployed = task.seen_and_deployed(images, rows)
            return Run(images=images, loss=loss(logits, rows), fooled=fooled(deployed, task.y[rows]))
