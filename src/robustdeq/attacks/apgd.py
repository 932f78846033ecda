"""Auto-PGD (Croce & Hein 2020) with the value/gradient split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from robustdeq.attacks.ascent import View, auto_ascent
from robustdeq.attacks.runs import Run, best_of
from robustdeq.attacks.steering import Steered
from robustdeq.attacks.task import Task, fooled, input_gradient
from robustdeq.threat import cross_entropy, dlr, dlr_targeted


@dataclass(frozen=True, kw_only=True)
class APGD(Steered):
    """Parameter-free ascent (arXiv 2003.01690, Algorithm 1): see `robustdeq.attacks.ascent`.

    The result is the last iterate that fooled the predictor, else the one of highest objective. Of several runs
    (restarts, targets) an image keeps the first that fooled it, else that of highest objective.
    """

    loss: Literal["ce", "dlr", "dlr_targeted"] = "ce"
    n_iter: int = 100
    restarts: int = 1
    """Runs, for each target if there are targets; a given start is that of the first."""
    targets: int = 9
    """"dlr_targeted": how many classes are tried, the likeliest wrong one first; at most all wrong ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in ("ce", "dlr", "dlr_targeted"):
            raise ValueError(f"loss must be 'ce', 'dlr' or 'dlr_targeted', got {self.loss!r}")
        if min(self.n_iter, self.restarts, self.targets) < 1:
            raise ValueError(
                f"n_iter, restarts and targets must be at least 1, got {self.n_iter}, {self.restarts}, {self.targets}"
            )

    @property
    def name(self) -> str:
        """APGD-CE, APGD-DLR or APGD-T."""
        return {"ce": "APGD-CE", "dlr": "APGD-DLR", "dlr_targeted": "APGD-T"}[self.loss]

    @property
    def least_classes(self) -> int:
        """As the loss."""
        return {"ce": 2, "dlr": 3, "dlr_targeted": 4}[self.loss]

    @property
    def kind(self) -> str:
        """Each loss has its own starts: the attacks of an ensemble should not all begin at the same point."""
        return self.name

    def find(self, task: Task) -> Tensor:
        """The best of all restarts, or of all targets and restarts."""
        if self.loss != "dlr_targeted":
            formula = {"ce": cross_entropy, "dlr": dlr}[self.loss]
            return best_of(task, self.restarts, lambda rows, run: self._run(task, rows, run, formula))
        with torch.no_grad():
            classes = likeliest_wrong(task.straight_through(task.x, task.all_rows), task.y, self.targets)

        def towards(rows: Tensor, run: int) -> Run:
            target = classes[rows, run // self.restarts]
            return self._run(task, rows, run, dlr_targeted, target)

        return best_of(task, classes.shape[1] * self.restarts, towards)

    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        """A random point of the ball, except that the first run (of every target) takes a given start."""
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
    """(B, min(count, C - 1)): classes other than y, by falling logits."""
    wrong = logits.masked_fill(F.one_hot(y, logits.shape[1]).bool(), -torch.inf)
    return wrong.sort(dim=1, descending=True).indices[:, : min(count, logits.shape[1] - 1)]
