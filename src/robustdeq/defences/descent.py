"""The inner loop of input entropy reduction: R steps of x^ down the entropy of h(f(z; x^)), z constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robustdeq.defences.switches import Direction
from robustdeq.models import DEQ, BoundDynamics
from robustdeq.models.predictor import entropy


class InputEntropy:
    """H(h(f(z; x))) as a function of x, for the many times it is needed in a pass."""

    def __init__(self, model: DEQ) -> None:
        self.model = model
        self.encoder, self.head = model.input_parts()

    def __call__(self, f: BoundDynamics, h: Any, x: Tensor) -> Tensor:
        """The entropy of each image, with h = f.prepare(z)."""
        return entropy(self.head(f.inject_unpacked(h, self.encoder(x))))


@runtime_checkable
class Descent(Protocol):
    """How x^ moves at an intervention."""

    def __call__(self, H: InputEntropy, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> Tensor:
        """The new x^, from the state z, the received image x and x^ so far."""
        ...


@dataclass(frozen=True)
class EntropyDescent:
    """`steps` times x^ <- Proj(x^ - step_size * direction(grad H)), into the ball around x and [0, 1].

    Everything in f that the injection does not touch is computed once. The gradient is of each image's own entropy; a
    pixel whose gradient is not finite stays where it is.
    """

    steps: int = 10
    step_size: float = 2 / 255
    radius: float = 8 / 255
    direction: Direction = "gradient"

    def __call__(
        self,
        H: InputEntropy,
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
                value = H(f, h, point)
                (gradient,) = torch.autograd.grad(value.sum(), point)
            if trace is not None:
                trace.append(value.detach())
            if gradient.stride() != x_hat.stride():  # mixed layouts make every pass over the pixels slow
                x_hat, low, high = (torch.empty_like(gradient).copy_(pixels) for pixels in (x_hat, low, high))
            move = gradient.nan_to_num(0.0, 0.0, 0.0)
            if self.direction == "sign":
                move.sign_()
            x_hat = x_hat.sub(move, alpha=self.step_size).clamp_(low, high)
        if trace is not None:
            trace.append(H(f, h, x_hat))
        return x_hat

    def bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The ball around x, within [0, 1]."""
        return (x - self.radius).clamp(0, 1), (x + self.radius).clamp(0, 1)
