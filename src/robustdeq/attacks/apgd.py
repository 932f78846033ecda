"""Auto-PGD (Croce & Hein 2020, Algorithm 1): momentum, and step sizes that halve where the loss stops growing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.arguments import rows_like
from robustdeq.attacks.ascent import Run, best_of, input_gradient
from robustdeq.attacks.base import Steered
from robustdeq.attacks.task import Task, fooled
from robustdeq.threat import Threat, cross_entropy, dlr, dlr_targeted

MOMENTUM = 0.75
"""alpha, the weight of the new step; the previous step has weight 1 - alpha."""
GROWTH = 0.75
"""rho: a step size is kept while the loss grows in more than this share of the steps between two checkpoints."""


@dataclass(frozen=True, kw_only=True)
class APGD(Steered):
    """Parameter-free ascent, steered by the deployed predictor's values with the surrogate's gradient.

    The result is the last iterate that fooled the predictor, or the one of highest loss if none did. With several runs
    (restarts, targets), an image keeps the first run that fooled the predictor, or the one of highest loss.
    """

    loss: Literal["ce", "dlr", "dlr_targeted"] = "ce"
    n_iter: int = 100
    restarts: int = 1
    """Number of runs, for each target if there are targets; only the first one uses a given start."""
    targets: int = 9
    """Number of target classes of "dlr_targeted", the likeliest wrong class first; at most all wrong classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in ("ce", "dlr", "dlr_targeted"):
            raise ValueError(f"loss must be 'ce', 'dlr' or 'dlr_targeted', got {self.loss!r}")
        if min(self.n_iter, self.restarts, self.targets) < 1:
            raise ValueError(
                f"n_iter, restarts and targets must be at least 1, got {self.n_iter}, {self.restarts}, {self.targets}"
            )

    @property
    @override
    def name(self) -> str:
        return {"ce": "APGD-CE", "dlr": "APGD-DLR", "dlr_targeted": "APGD-T"}[self.loss]

    @property
    @override
    def least_classes(self) -> int:
        return {"ce": 2, "dlr": 3, "dlr_targeted": 4}[self.loss]

    @property
    @override
    def kind(self) -> str:
        return self.name  # each loss has its own starts, so that the attacks of an ensemble begin at different points

    @override
    def find(self, task: Task) -> Tensor:
        if self.loss != "dlr_targeted":
            formula = {"ce": cross_entropy, "dlr": dlr}[self.loss]
            return best_of(task, self.restarts, lambda rows, run: self._run(task, rows, run, formula))
        with torch.no_grad():
            classes = likeliest_wrong(task.straight_through(task.x, task.all_rows), task.y, self.targets)

        def towards(rows: Tensor, run: int) -> Run:
            target = classes[rows, run // self.restarts]
            return self._run(task, rows, run, dlr_targeted, target)

        return best_of(task, classes.shape[1] * self.restarts, towards)

    @override
    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        """A given start in the first run of every target, otherwise random points of the balls."""
        if task.start is not None and run % self.restarts == 0:
            return task.start[rows]
        return super().begin(task, rows, run)

    def _run(self, task: Task, rows: Tensor, run: int, formula: Callable[..., Tensor], *classes: Tensor) -> Run:
        def look(x: Tensor, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            here, x = rows[active], x.detach().requires_grad_()
            logits = task.straight_through(x, here)
            loss = formula(logits, task.y[here], *[c[active] for c in classes])
            gradient, success = input_gradient(loss, x), fooled(logits.detach(), task.y[here])
            return loss.detach().nan_to_num(nan=-torch.inf), gradient, success

        origin, start = task.x[rows], self.begin(task, rows, run)
        return auto_ascent(look, start, origin, self.threat, self.n_iter, leave=not task.every_image)


def likeliest_wrong(logits: Tensor, y: Tensor, count: int) -> Tensor:
    """The classes other than y in order of decreasing logits, (B, min(count, C - 1))."""
    wrong = logits.masked_fill(F.one_hot(y, logits.shape[1]).bool(), -torch.inf)
    return wrong.sort(dim=1, descending=True).indices[:, : min(count, logits.shape[1] - 1)]


Look = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Function (images, their rows) -> loss, input gradient and success of each of these images."""


def checkpoints(steps: int) -> list[int]:
    """The steps after which step sizes are reviewed: after 22% of the steps, then 19%, 16%, ..., at least 6% each.

    Periods are rounded one by one, as in the authors' implementation; for 100 steps this is the paper's schedule.
    """
    period, shrink, least = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    times = [period]
    while times[-1] < steps:
        period = max(period - shrink, least)
        times.append(times[-1] + period)
    return [time for time in times if time <= steps]


def auto_ascent(look: Look, start: Tensor, origin: Tensor, threat: Threat, steps: int, *, leave: bool) -> Run:
    """One run: per image the last point that fooled, or else the one of highest loss, and the highest loss.

    Args:
        look: The view of the predictor.
        start: Starting points, inside the balls.
        origin: Clean images, the centres of the balls.
        threat: The ball.
        steps: Number of steps; `look` is called once more than that.
        leave: Whether an image leaves the batch once it has fooled the predictor.
    """
    everyone = torch.arange(len(start), device=start.device)
    x = previous = best_x = found = start
    loss, gradient, ever = look(x, everyone)
    best_loss = best_before = loss
    best_gradient = gradient
    size = torch.full((len(start),), 2 * threat.eps, dtype=start.dtype, device=start.device)
    growths, halved, last_time = torch.zeros_like(everyone), torch.ones_like(ever), 0
    times = checkpoints(steps)
    for step in range(1, steps + 1):
        active = (~ever).nonzero().flatten() if leave else everyone
        if len(active) == 0:
            break
        alpha = MOMENTUM if step > 1 else 1.0
        ahead = threat.project(x + rows_like(size, x) * threat.ascent(gradient), origin)
        x, previous = threat.project(x + (ahead - x) * alpha + (x - previous) * (1 - alpha), origin), x
        loss_before = loss
        losses, gradients, success = look(x[active], active)
        loss, gradient = loss.index_copy(0, active, losses), gradient.index_copy(0, active, gradients)
        anew = torch.zeros_like(ever).index_copy(0, active, success)
        found, ever = torch.where(rows_like(anew, x), x, found), ever | anew
        grown = loss > best_loss
        best_loss = torch.where(grown, loss, best_loss)
        best_x = torch.where(rows_like(grown, x), x, best_x)
        best_gradient = torch.where(rows_like(grown, x), gradient, best_gradient)
        growths = growths + (loss > loss_before)
        if step in times:
            # <= as in the authors' implementation; the paper has <, which differs only if GROWTH * period is an integer
            halved = (growths <= GROWTH * (step - last_time)) | (~halved & (best_loss <= best_before))
            size = torch.where(halved, size / 2, size)
            x = torch.where(rows_like(halved, x), best_x, x)
            gradient = torch.where(rows_like(halved, x), best_gradient, gradient)
            growths, best_before, last_time = torch.zeros_like(growths), best_loss, step
    return Run(images=torch.where(rows_like(ever, x), found, best_x), loss=best_loss, fooled=ever)
