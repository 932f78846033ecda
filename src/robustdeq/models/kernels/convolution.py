"""Same-size convolutions in their fastest form: as a matrix product, by Winograd tiles, or direct.

All forms compute the same function.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.kernels.winograd import TiledKernel, Transform, convolve_tiled, worth_tiling

Kernel = Tensor | TiledKernel
"""A kernel in any of the forms that `convolve` accepts."""


def convolve(x: Tensor, weight: Kernel) -> Tensor:
    """Same-size convolution without bias; the kernel is square, or a result of `for_maps`."""
    if isinstance(weight, TiledKernel):
        return convolve_tiled(x, weight)
    if weight.ndim == 2:
        batch, _, height, width = x.shape
        return F.linear(_pixels(x).reshape(batch, -1), weight).view(batch, height, width, -1).permute(0, 3, 1, 2)
    if weight.shape[-1] == 1 and x.is_contiguous(memory_format=torch.channels_last):
        return F.linear(_pixels(x), weight.flatten(1)).permute(0, 3, 1, 2)
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)


def for_maps(weight: Tensor, height: int, width: int, transform: Transform | None = None) -> Kernel:
    """The fastest form of a kernel for maps of one size: 3x3 kernels become a matrix on up to 2x2 pixels, or are tiled.

    On 2x2 pixels all pixels are neighbours, so the matrix has no zeros and fewer entries than the convolution has
    products. Its rows and columns are ordered (h, w, channel).

    Args:
        weight: The kernel, (out, in, k, k).
        height: Height of the maps in pixels.
        width: Width of the maps in pixels.
        transform: The Winograd transform of the kernel, if it exists already.
    """
    if weight.shape[-1] != 3:
        return weight
    if worth_tiling(weight, height, width):
        return TiledKernel(weight, transform or Transform(weight))
    if max(height, width) > 2:
        return weight
    taps = _pixels(weight)  # (out, 3, 3, in)
    rows = torch.stack([taps[:, 1 - i : 1 - i + height] for i in range(height)])  # (h', out, h, 3, in)
    both = torch.stack([rows[..., 1 - j : 1 - j + width, :] for j in range(width)], 1)  # (h', w', out, h, w, in)
    return both.flatten(3).flatten(0, 2)


def untiled(kernel: Kernel) -> Tensor:
    """The kernel as a tensor, tiled or not."""
    return kernel.weight if isinstance(kernel, TiledKernel) else kernel


class Pointwise(nn.Conv2d):
    """A 1x1 convolution without bias, computed as a matrix product."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1, bias=False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        return convolve(x, self.weight)


def _pixels(x: Tensor) -> Tensor:
    """A view with channels as the last axis; contiguous if x is channels last."""
    return x.permute(0, 2, 3, 1)
