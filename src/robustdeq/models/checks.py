"""Checks of a model's input."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def check_images(model: nn.Module, x: Tensor) -> None:
    """Raises an error unless the images are floating point, not empty, and of the model's precision and device."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"expected floating-point pixels in [0, 1], got {found}; convert with x.float() / 255")
    if x.ndim == 0 or len(x) == 0:
        raise ValueError(f"expected a batch of at least one image, got shape {tuple(x.shape)}")
    parameter = next(model.parameters(), None)
    if parameter is None or torch.is_autocast_enabled(x.device.type):
        return
    if (x.dtype, x.device) != (parameter.dtype, parameter.device):
        raise TypeError(
            f"the images are {x.dtype} on {x.device}, the model is {parameter.dtype} on {parameter.device}: "
            "move one to the other with .to(...)"
        )


def check_channels(x: Tensor, channels: int) -> None:
    """Raises an error unless x has the shape (batch, channels, height, width)."""
    if x.ndim != 4 or x.shape[1] != channels:
        raise ValueError(f"expected images of shape (batch, {channels}, height, width), got {tuple(x.shape)}")
