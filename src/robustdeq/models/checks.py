"""Checks of a model's input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

LARGEST_SIZE = 2**20
"""The largest number of channels or classes; a billion is a typing error or a hostile file."""
MOST_SCALES = 16
"""The largest number of scales, and of halvings: the first stands for images of 65,536 pixels' width."""
MOST_STEPS = 10_000
"""The largest number of steps in the settings of a checkpoint; every step of a solver keeps a state."""


def check_sizes(name: str, *values: Any, most_entries: int = 1, largest: int = LARGEST_SIZE) -> None:
    """Raises an error unless each of the lists holds whole numbers of a size that a model may have."""
    for sizes in values:
        listed = isinstance(sizes, list | tuple) and len(sizes) <= most_entries
        if not listed or not all(type(n) is int and n <= largest for n in sizes):
            shown = repr(sizes) if len(repr(sizes)) < 200 else f"{len(sizes):,} entries"
            raise ValueError(f"{name}: expected whole numbers up to {largest:,}, at most {most_entries}, got {shown}")


def check_images(model: nn.Module, x: Tensor) -> None:
    """Raises an error unless the images are floating point, not empty, and of the model's precision and device."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"expected floating-point pixels in [0, 1], got {found}; convert with x.float() / 255")
    if x.layout is not torch.strided:
        raise TypeError(f"expected dense images, got {x.layout}; convert with x.to_dense()")
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
