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
        def look(x: Tensor, active: Tensor) -> View:
            here, x = rows[active], x.detach().requires_grad_()
            logits = task.straight_through(x, here)
            loss = formula(logits, task.y[here], *[c[active] for c in classes])
            return View(
                gradient=input_gradient(loss, x),
                loss=loss.detach().nan_to_num(nan=-torch.inf),
                fooled=fooled(logits.detach(), task.y[here]),
            )

        origin, start = task.x[rows], self.begin(task, rows, run)
        return auto_ascent(look, start, origin, self.threat, self.n_iter, leave=not task.every_image)


def likeliest_wrong(logits: Tensor, y: Tensor, count: int) -> Tensor:
    """The classes other than y in order of decreasing logits, (B, min(count, C - 1))."""
    wrong = logits.masked_fill(F.one_hot(y, logits.shape[1]).bool(), -torch.inf)
    return wrong.sort(dim=1, descending=True).indices[:, : min(count, logits.shape[1] - 1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Loss, input gradient and success at the current points, per image."""

    loss: Tensor
    gradient: Tensor
    fooled: Tensor

    def updated(self, active: Tensor, new: View) -> View:
        """The view with new values for the active images; the others keep theirs and count as not fooled anew."""
        return View(
            loss=self.loss.index_copy(0, active, new.loss),
            gradient=self.gradient.index_copy(0, active, new.gradient),
            fooled=torch.zeros_like(self.fooled).index_copy(0, active, new.fooled),
        )


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


def auto_ascent(
    look: Callable[[Tensor, Tensor], View], start: Tensor, origin: Tensor, threat: Threat, steps: int, *, leave: bool
) -> Run:
    """One run: per image the last point that fooled, or else the one of highest loss, and the highest loss.

    Args:
        look: Function (images, their rows) -> `View` at these images.
        start: Starting points, inside the balls.
        origin: Clean images, the centres of the balls.
        threat: The ball.
        steps: Number of steps; `look` is called once more than that.
        leave: Whether an image leaves the batch once it has fooled the predictor.
    """
    everyone = torch.arange(len(start), device=start.device)
    x = previous = start
    view = look(x, everyone)
    best_x, best = x, view
    found, ever = x, view.fooled
    size = torch.full((len(start),), 2 * threat.eps, dtype=start.dtype, device=start.device)
    growths, halved, best_before, last_time = torch.zeros_like(everyone), torch.ones_like(ever), view.loss, 0
    times = checkpoints(steps)
    for step in range(1, steps + 1):
        active = (~ever).nonzero().flatten() if leave else everyone
        if len(active) == 0:
            break
        alpha = MOMENTUM if step > 1 else 1.0
        ahead = threat.project(x + rows_like(size, x) * threat.ascent(view.gradient), origin)
        x, previous = threat.project(x + (ahead - x) * alpha + (x - previous) * (1 - alpha), origin), x
        loss_before = view.loss
        view = view.updated(active, look(x[active], active))
        found = torch.where(rows_like(view.fooled, x), x, found)
        ever = ever | view.fooled
        best_x, best = _better(best_x, best, x, view)
        growths = growths + (view.loss > loss_before)
        if step in times:
            # <= as in the authors' implementation; the paper has <, which differs only if GROWTH * period is an integer
            halved = (growths <= GROWTH * (step - last_time)) | (~halved & (best.loss <= best_before))
            size = torch.where(halved, size / 2, size)
            x = torch.where(rows_like(halved, x), best_x, x)
            gradient = torch.where(rows_like(halved, x), best.gradient, view.gradient)
            view = View(loss=view.loss, gradient=gradient, fooled=view.fooled)
            growths, best_before, last_time = torch.zeros_like(growths), best.loss, step
    return Run(images=torch.where(rows_like(ever, x), found, best_x), loss=best.loss, fooled=ever)


def _better(best_x: Tensor, best: View, x: Tensor, view: View) -> tuple[Tensor, View]:
    grown = view.loss > best.loss
    rows = rows_like(grown, x)
    return torch.where(rows, x, best_x), View(
        loss=torch.where(grown, view.loss, best.loss),
        gradient=torch.where(rows, view.gradient, best.gradient),
        fooled=torch.where(grown, view.fooled, best.fooled),
    )
