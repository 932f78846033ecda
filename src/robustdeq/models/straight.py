"""Values of one tensor, gradients of another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def straight_through(values: Tensor, gradient: Tensor) -> Tensor:
    """The values of one tensor with the gradient of another."""
    result: Tensor = _StraightThrough.apply(values, gradient)
    return result


class _StraightThrough(torch.autograd.Function):
    """The first argument; gradients go to the second. (Not v + g - g: that is NaN where g is not finite.)"""

    @staticmethod
    def forward(ctx: Any, values: Tensor, gradient: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad
