"""An attack and an oracle of your own, for a suite: `attack: my_attacks:MIFGSM`, `oracle: my_attacks:Averaged`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import robustdeq as rd


@dataclass(frozen=True, kw_only=True)
class MIFGSM(rd.Attack):
    """Sign steps along a decaying sum of normalised gradients (Dong et al. 2018)."""

    steps: int = 10
    decay: float = 1.0

    def search(self, task) -> Tensor:
        """Images within the threat's ball around `task.x`."""
        x, velocity = task.x, torch.zeros_like(task.x)
        for _ in range(self.steps):
            gradient = task.gradient(x)
            velocity = self.decay * velocity + gradient / gradient.abs().mean((1, 2, 3), keepdim=True).clamp_min(1e-12)
            x = self.threat.project(x + self.threat.eps / self.steps * self.threat.ascent(velocity), task.x)
        return x


@dataclass(frozen=True, eq=False)
class Averaged(rd.Oracle):
    """The predictor's own logits, averaged over the image and its mirror image."""

    predictor: Callable[[Tensor], Tensor]
    weight: float = 0.5

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor, which judges every attack."""
        return self.predictor

    def estimate(self, x: Tensor) -> Tensor:
        """The surrogate's logits, differentiable in x."""
        return torch.lerp(self.predictor(x), self.predictor(x.flip(-1)), self.weight)
