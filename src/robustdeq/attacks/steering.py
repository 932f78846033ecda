"""Attacks that steer by what they see, and whose answers that is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from robustdeq.attacks.base import Attack
from robustdeq.attacks.doors import rows_like
from robustdeq.attacks.oracles import SurrogateAlone
from robustdeq.attacks.task import Task, fooled


@dataclass(frozen=True, kw_only=True)
class Steered(Attack):
    """An attack whose course depends on the values it sees: step sizes, the best point, "is it fooled yet"."""

    steer: Literal["deployed", "surrogate"] = "deployed"
    """Whose logits those are; the gradient is always the surrogate's.

    "surrogate" is the released evaluation's mode, for comparison only: it never looks at the deployed predictor, and
    where the surrogate was not fooled it gives the clean image back, which overstates robustness.
    """

    def __post_init__(self) -> None:
        if self.steer not in ("deployed", "surrogate"):
            raise ValueError(f"steer must be 'deployed' or 'surrogate', got {self.steer!r}")

    @abstractmethod
    def find(self, task: Task) -> Tensor:
        """The search, by the logits that `task.deployed` gives."""

    def search(self, task: Task) -> Tensor:
        """What is found, or the clean image where that fooled nobody whom the attack could see."""
        if self.steer == "deployed":
            return self.find(task)
        task = replace(task, oracle=SurrogateAlone(task.oracle))
        images = self.find(task)
        with torch.no_grad():
            success = fooled(task.deployed(images, task.all_rows), task.y)
        return torch.where(rows_like(success, images), images, task.x)
