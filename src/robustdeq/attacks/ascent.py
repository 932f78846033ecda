"""The ascent of Auto-PGD (Croce & Hein 2020, Algorithm 1): momentum, and step sizes that halve where growth stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robustdeq.attacks.doors import rows_like
from robustdeq.attacks.runs import Run
from robustdeq.threat import Threat

MOMENTUM = 0.75
"""alpha: the weight of the new step; 1 - alpha is that of the last one."""
GROWTH = 0.75
"""rho: a step size stays while the objective grows in more than this share of a period's steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What is known at some points, per image."""

    loss: Tensor
    gradient: Tensor
    fooled: Tensor

    def updated(self, active: Tensor, new: View) -> View:
        """New knowledge of the active images; the others stay as they are and fool nobody anew."""
        return View(
            loss=self.loss.index_copy(0, active, new.loss),
            gradient=self.gradient.index_copy(0, active, new.gradient),
            fooled=torch.zeros_like(self.fooled).index_copy(0, active, new.fooled),
        )


def checkpoints(steps: int) -> list[int]:
    """After how many steps the step sizes are looked at: periods of 22%, 19%, 16%.. of the steps, not below 6%.

    Rounded period by period, as the authors' implementation does; for 100 steps that is the paper's schedule.
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
    """The last point that fooled, else the one of highest loss; with its highest loss, and whether any point fooled.

    Args:
        look: (images, their rows) -> the view there.
        start: Points of the ball.
        origin: Its centres.
        threat: The ball.
        steps: So many, and one look more than that.
        leave: An image that has fooled is not looked at any more.
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
            # <= as in the authors' implementation; the paper has <, which differs only if GROWTH * period is whole
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
