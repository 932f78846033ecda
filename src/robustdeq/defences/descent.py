"""The inner loop of input entropy reduction: R steps of x^ down the entropy of h(f(z; x^)), z constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from robustdeq.defences.switches import Direction
from robustdeq.models import DEQ, BoundDynamics
from robustdeq.models.predictor import entropy


class Descent(Protocol):
    """How x^ moves at an intervention."""

    def __call__(self, model: DEQ, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> Tensor:
        """The new x^, from the state z, the received image x and x^ so far."""
        ...


@dataclass(frozen=True)
class EntropyDescent:
    """`steps` times x^ <- Proj(x^ - step_size * direction(grad H)), into the ball around x and [0, 1].

    Everything in f that the injection does not touch is computed once. The gradient is of each image's own entropy; an
    image whose gradient is not finite stays where it is.
    """

    steps: int = 10
    step_size: float = 2 / 255
    radius: float = 8 / 255
    direction: Direction = "gradient"

    def __call__(
        self,
        model: DEQ,
        f: BoundDynamics,
        z: Tensor,
        x: Tensor,
        x_hat: Tensor,
        trace: list[Tensor] | None = None,
    ) -> Tensor:
        """The new x^; `trace` is given H before each step and after the last."""
        h = f.prepare(z)
        low, high = self.bounds(x)
        for _ in range(self.steps):
            with torch.enable_grad():
                point = x_hat.detach().requires_grad_()
                H = entropy(model.head(f.unpack(f.inject(h, model.encoder(point)))))
                (gradient,) = torch.autograd.grad(H.sum(), point)
            if trace is not None:
                trace.append(H.detach())
            move = gradient.sign() if self.direction == "sign" else gradient
            moved = torch.minimum(torch.maximum(x_hat - self.step_size * move, low), high)
            x_hat = torch.where(torch.isfinite(gradient), moved, x_hat)
        if trace is not None:
            trace.append(entropy(model.head(f.unpack(f.inject(h, model.encoder(x_hat))))))
        return x_hat

    def bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The ball around x, within [0, 1]."""
        return (x - self.radius).clamp(0, 1), (x + self.radius).clamp(0, 1)
