"""The updates of entropy reduction as a differentiable function, for attacks through the defence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustdeq.defences.descent import EntropyDescent, InputEntropy
from robustdeq.models import BoundDynamics
from robustdeq.models.modes import attacking


@dataclass(frozen=True)
class SmoothDescent:
    """The same updates with sign(g) replaced by tanh(g / (smoothing * mean |g|)), the mean of each image a constant.

    The graph of an intervention is not kept in memory: the backward pass computes it again.
    """

    descent: EntropyDescent
    smoothing: float = 1.0

    def __call__(self, H: InputEntropy, f: BoundDynamics, z: Tensor, x: Tensor, x_hat: Tensor) -> Tensor:
        """The new x^."""
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
