"""Checks of the arguments of an attack."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robustdeq.threat import Threat


def check_arguments(x: Tensor, y: Tensor, index: Sequence[int] | Tensor | None) -> None:
    """Require images with pixels in [0, 1] or NaN, one label per image, and one index per image if any."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"expected floating-point pixels in [0, 1], got {found}; convert with x.float() / 255")
    if x.layout is not torch.strided:
        raise TypeError(f"expected dense images, got {x.layout}; convert with x.to_dense()")
    if x.ndim < 2 or len(x) == 0:
        raise ValueError(f"expected a batch of at least one image, got shape {tuple(x.shape)}")
    if ((x < 0) | (x > 1)).any():
        low, high = x[~x.isnan()].min().item(), x[~x.isnan()].max().item()
        raise ValueError(f"pixels must lie in [0, 1], got [{low:g}, {high:g}]; divide 8-bit images by 255")
    if not isinstance(y, Tensor) or y.dtype != torch.int64:
        found, convert = (y.dtype, "y.long()") if isinstance(y, Tensor) else (type(y).__name__, "torch.tensor(y)")
        raise TypeError(f"expected labels as a tensor of int64, got {found}; convert with {convert}")
    if y.shape != x.shape[:1]:
        raise ValueError(f"expected one label for each of the {len(x)} images, got labels of shape {tuple(y.shape)}")
    if (y < 0).any():
        raise ValueError(f"labels count from 0, got {int(y.min())}")
    if index is not None and len(index) != len(x):
        raise ValueError(f"expected one index for each of the {len(x)} images, got {len(index)}")


def check_labels(y: Tensor, classes: int) -> None:
    """Require labels of classes that the predictor has."""
    if int(y.max()) >= classes:
        raise ValueError(f"the labels go up to {int(y.max())}, the predictor has {classes} classes, counted from 0")


def checked_start(threat: Threat, start: Tensor | None, x: Tensor) -> Tensor | None:
    """The given start, cleared of rounding errors by projection; a start outside the ball is an error.

    An image with NaN pixels starts at itself.
    """
    if start is None:
        return None
    if not isinstance(start, Tensor) or (start.shape, start.dtype) != (x.shape, x.dtype):
        found = f"{start.dtype} {tuple(start.shape)}" if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(f"start must be like the images, {x.dtype} {tuple(x.shape)}, got {found}")
    start = start.detach().to(x.device)
    broken = x.isnan().flatten(1).any(1)
    outside = ~threat.contains(start, x) & ~broken
    if outside.any():
        row = int(outside.nonzero()[0])
        distance = float(threat.distance(start[row : row + 1], x[row : row + 1]))
        raise ValueError(
            f"start must lie inside {threat} and [0, 1]; image {row} is at distance {distance:g}: "
            "project it with threat.project(start, x)"
        )
    return torch.where(rows_like(broken, x), x, threat.project(start, x))


def rows_like(values: Tensor, x: Tensor) -> Tensor:
    """Reshape one value per image, (B,), to (B, 1, ..., 1), so that it broadcasts with the images x."""
    return values.reshape(-1, *[1] * (x.ndim - 1))
