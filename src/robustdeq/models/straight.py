"""Straight-through: the values of one tensor with the gradient of another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def straight_through(values: Tensor, gradient: Tensor) -> Tensor:
    """A tensor with the values of the first argument, whose gradient flows to the second."""
    result: Tensor = _StraightThrough.apply(values, gradient)
    return result


class _StraightThrough(torch.autograd.Function):
    """Used instead of v + g - g, which would be NaN where g is not finite."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, gradient: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad
