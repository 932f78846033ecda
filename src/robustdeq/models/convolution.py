"""Convolutions in the form that is fastest: products of matrices on small maps and for 1x1 kernels, Winograd's tiles.

They are the same functions; only how they are handed to the machine differs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustdeq.models.winograd import TiledKernel, Transform, convolve_tiled, worth_tiling

Kernel = Tensor | TiledKernel
"""What `convolve` takes."""


def convolve(x: Tensor, weight: Kernel) -> Tensor:
    """Same-size convolution without bias with a square kernel, or with what `for_maps` made of it."""
    if isinstance(weight, TiledKernel):
        return convolve_tiled(x, weight)
    if weight.ndim == 2:
        return _times_matrix(x, weight)
    if weight.shape[-1] == 1 and x.is_contiguous(memory_format=torch.channels_last):
        return F.linear(_pixels(x), weight.flatten(1)).permute(0, 3, 1, 2)
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)


def for_maps(weight: Tensor, height: int, width: int, transform: Transform | None = None) -> Kernel:
    """A kernel for maps of one size: a 3x3 one on at most 2x2 pixels becomes a matrix, wide ones are tiled.

    On 2x2 pixels every one is a neighbour of every other, so the matrix has no zeros, and fewer entries than the
    convolution has products. Rows and columns are ordered (h, w, channel). `transform` is this weight's, if known.
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
    """The kernel as a tensor."""
    return kernel.weight if isinstance(kernel, TiledKernel) else kernel


class Pointwise(nn.Conv2d):
    """A 1x1 convolution without bias, as a product of matrices."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x."""
        return convolve(x, self.weight)


def _times_matrix(x: Tensor, matrix: Tensor) -> Tensor:
    batch, _, height, width = x.shape
    y = F.linear(_pixels(x).reshape(batch, -1), matrix)
    return y.view(batch, height, width, -1).permute(0, 3, 1, 2)


def _pixels(x: Tensor) -> Tensor:
    """Channels as the last axis: a view, and contiguous, of what lies channels last."""
    return x.permute(0, 2, 3, 1)
