"""The updates of input entropy reduction: R steps of x^ down the entropy of h(f(z; x^)) at a constant state z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustdeq.defences.switches import Direction
from robustdeq.models import DEQ, BoundDynamics
from robustdeq.models.modes import attacking
from robustdeq.models.predictor import entropy


class InputEntropy:
    """The entropy H(h(f(z; x))) as a function of x."""

    def __init__(self, model: DEQ) -> None:
        self.model = model
        self.encoder, self.head = model.inference_parts()

    def __call__(self, f: BoundDynamics, h: Any, x: Tensor) -> Tensor:
        """The entropy of each image, (B,), with h = f.prepare(z)."""
        return entropy(self.head(f.inject_unpacked(h, self.encoder(x))))


@dataclass(frozen=True)
class EntropyDescent:
    """`steps` times x^ <- Proj(x^ - step_size * direction(grad H)), into the ball around x and [0, 1].

    The part of f that does not depend on the injection is computed once. Each image follows the gradient of its own
    entropy; a pixel whose gradient is not finite stays as it is.
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
        """The new x^; appends H, (B,), before each step and after the last one to `trace`."""
        h = f.prepare(z)
        low, high = self.bounds(x)
        for _ in range(self.steps):
            with torch.enable_grad():
                point = x_hat.detach().requires_grad_()
                value = H(f, h, point)
                (gradient,) = torch.autograd.grad(value.sum(), point)
            if trace is not None:
                trace.append(value.detach())
            if gradient.stride() != x_hat.stride():  # mixed memory layouts make every operation slow
                x_hat, low, high = (torch.empty_like(gradient).copy_(pixels) for pixels in (x_hat, low, high))
            move = gradient.nan_to_num(0.0, 0.0, 0.0)
            if self.direction == "sign":
                move.sign_()
            x_hat = x_hat.sub(move, alpha=self.step_size).clamp_(low, high)
        if trace is not None:
            trace.append(H(f, h, x_hat))
        return x_hat

    def bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest and highest allowed value of each pixel: the ball around x within [0, 1]."""
        return (x - self.radius).clamp(0, 1), (x + self.radius).clamp(0, 1)


@dataclass(frozen=True)
class SmoothDescent:
    """The updates as a differentiable function, for attacks through the defence.

    sign(g) is replaced by tanh(g / (smoothing * mean |g|)), the mean of each image a constant. The graph of an
    intervention is not kept in memory: the backward pass computes it again.
    """

    descent: EntropyDescent
    smoothing: float = 1.0

    def __call__(self, H: InputEntropy, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> Tensor:
        """The images x^ after the updates of one intervention."""
        result: Tensor = _Recomputed.apply(self, H, f, z, x, x_hat)
        return result

    def updates(self, H: InputEntropy, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor, *, graph: bool) -> Tensor:
        """The new x^; with `graph`, differentiable in z, x and x^."""
        h = f.prepare(z)
        low, high = self.descent.bounds(x)
        for _ in range(self.descent.steps):
            with torch.enable_grad():
                point = x_hat if graph else x_hat.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(H(f, h, point).sum(), point, create_graph=graph)
            move = self._smoothed(gradient) if self.descent.direction == "sign" else gradient
            moved = torch.minimum(torch.maximum(x_hat - self.descent.step_size * move, low), high)
            x_hat = torch.where(torch.isfinite(gradient), moved, x_hat)
        return x_hat

    def _smoothed(self, gradient: Tensor) -> Tensor:
        scale = gradient.detach().abs().mean(tuple(range(1, gradient.ndim)), keepdim=True)
        return torch.tanh(gradient / (self.smoothing * scale).clamp_min(torch.finfo(gradient.dtype).tiny))


class _Recomputed(torch.autograd.Function):
    """An intervention whose graph exists only during its backward pass."""

    @staticmethod
    def forward(
        ctx: Any, smooth: SmoothDescent, H: InputEntropy, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor
    ) -> Tensor:
        ctx.save_for_backward(z, x, x_hat)
        ctx.parts = smooth, H, f
        return smooth.updates(H, f, z, x, x_hat, graph=False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        smooth, H, f = ctx.parts
        with attacking(H.model), torch.enable_grad():
            z, x, x_hat = (t.detach().clone().requires_grad_() for t in ctx.saved_tensors)
            result = smooth.updates(H, f, z, x, x_hat, graph=True)
            grads = torch.autograd.grad(result, (z, x, x_hat), grad, allow_unused=True)
        return None, None, None, *grads
