"""Several runs of one search: restarts, targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robustdeq.attacks.task import Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Where a run ended, per image."""

    images: Tensor
    loss: Tensor
    fooled: Tensor


def best_of(task: Task, runs: int, run: Callable[[Tensor, int], Run]) -> Tensor:
    """An image keeps the first run that fooled the predictor and sits out later ones; else that of highest loss.

    Args:
        task: The images.
        runs: At most so many runs.
        run: Makes the run of this number on these rows.
    """
    images, rows = task.x.clone(), task.all_rows
    highest = torch.full((len(task),), -torch.inf, dtype=torch.float64, device=task.x.device)
    for number in range(runs):
        result = run(rows, number)
        loss = result.loss.double().nan_to_num(nan=-torch.inf)
        better = result.fooled | (loss > highest[rows]) | (number == 0)
        images[rows[better]] = result.images[better]
        highest[rows[better]] = loss[better]
        rows = rows[~result.fooled]
        if len(rows) == 0:
            break
    return images
