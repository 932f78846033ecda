"""Projected gradient ascent with fixed steps (Madry et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.ascent import Run, ascend, best_of, climb, gradient_of, input_gradient
from robustdeq.attacks.base import Attack
from robustdeq.attacks.task import Task, fooled
from robustdeq.threat import confident, cross_entropy, dlr, kl, margin, number

Loss = Callable[[Tensor, Tensor], Tensor]
"""Function (logits, rows of the task) -> loss per image."""


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """x <- project(x + step_size * ascent(grad loss)), `steps` times; the result is the last iterate.

    The search uses the oracle's own values and gradients: with `every_image=True` and one run, the deployed predictor
    only judges the result. With several runs, an image keeps the first run that fooled the deployed predictor, or else
    the one of highest loss.
    """

    steps: int = 10
    step_size: float | None = None
    """Length of a step in the threat's norm; None becomes a quarter of eps: 2/255 for the customary 8/255."""
    loss: Literal["ce", "margin", "dlr", "kl", "confident"] = "ce"
    """The loss to climb. "kl" is the divergence from the oracle's logits on the clean image, where its gradient
    vanishes; "confident" is the log-probability of the best wrong class, for oracles that show log-probabilities."""
    restarts: int = 1
    """Number of runs; only the first one uses a given start."""
    random_start: bool = True
    """If False, start at the clean image unless a start is given."""

    def __post_init__(self) -> None:
        size = self.threat.eps / 4 if self.step_size is None else number(self.step_size, "step_size")
        object.__setattr__(self, "step_size", size)
        if self.loss not in ("ce", "margin", "dlr", "kl", "confident"):
            raise ValueError(f"loss must be 'ce', 'margin', 'dlr', 'kl' or 'confident', got {self.loss!r}")
        if self.steps < 1 or self.restarts < 1:
            raise ValueError(f"steps and restarts must be at least 1, got {self.steps} and {self.restarts}")
        if not size > 0 and not size == self.threat.eps == 0:
            raise ValueError(f"step_size must be positive, got {size}")
        if self.restarts > 1 and not self.random_start:
            raise ValueError("several restarts from the clean image are all the same; set random_start=True")

    @property
    @override
    def name(self) -> str:
        return f"PGD-{self.steps}" + ("" if self.loss == "ce" else f"-{self.loss}")

    @property
    @override
    def least_classes(self) -> int:
        return 3 if self.loss == "dlr" else 2

    @override
    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        if not self.random_start and task.start is None:
            return task.x[rows].clone()
        return super().begin(task, rows, run)

    @override
    def search(self, task: Task) -> Tensor:
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
        """The last iterates; without `every_image`, an image stops where it first fools the deployed predictor."""
        start = self.begin(task, rows, run)
        if not task.every_image:
            return self._climb_until_fooled(task, rows, start, loss)
        gradient = gradient_of(lambda x, _: loss(task.seen(x, rows), rows))
        return climb(gradient, start, task.x[rows], self.threat, steps=self.steps, step_size=self.step_size)

    def _climb_until_fooled(self, task: Task, rows: Tensor, start: Tensor, loss: Loss) -> Tensor:
        """Like `climb`, but images leave the batch: one pass both judges an image and gives its gradient."""
        result, x = start.clone(), start
        active = torch.arange(len(rows), device=x.device)
        for _ in range(self.steps):
            x = x.detach().requires_grad_()
            here = rows[active]
            logits, deployed = task.seen_and_deployed(x, here)
            staying = ~fooled(deployed, task.y[here])
            if not staying.any():
                break
            gradient = input_gradient(loss(logits, here)[staying], x)[staying]
            active = active[staying]
            x = ascend(x[staying], gradient, task.x[rows[active]], self.threat, self.step_size)
            result[active] = x
        return result

    def _judged(self, task: Task, rows: Tensor, run: int, loss: Loss) -> Run:
        images = self._climb(task, rows, run, loss)
        with torch.no_grad():
            logits, deployed = task.seen_and_deployed(images, rows)
            return Run(images=images, loss=loss(logits, rows), fooled=fooled(deployed, task.y[rows]))
