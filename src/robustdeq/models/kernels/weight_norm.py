"""Weight-normed convolutions whose effective weight is computed once per pass, or once for many passes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustdeq.models.kernels.convolution import Kernel, convolve, for_maps
from robustdeq.models.kernels.winograd import Transform
from robustdeq.models.modes import KeepsWeights


class _Kernels:
    """The kernels of an effective weight by map size, which share one Winograd transform."""

    def __init__(self, weight: Tensor) -> None:
        self._weight, self._transform = weight, Transform(weight)
        self._by_size: dict[tuple[int, int], Kernel] = {}

    def for_maps(self, height: int, width: int) -> Kernel:
        size = height, width
        if size not in self._by_size:
            self._by_size[size] = for_maps(self._weight, height, width, self._transform)
        return self._by_size[size]


class WeightNormConv2d(KeepsWeights, nn.Module):
    """Convolution without bias whose weight is g v / ||v|| per output channel.

    The weight is an argument of `forward`: a pass computes it once and calls the layer many times. While a scope of
    `constant_weights` is open, passes share it too.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        default = nn.Conv2d(in_channels, out_channels, kernel, bias=False).weight.detach()
        self.padding = kernel // 2
        # on the meta device any value will do, and a norm would import torch's compiler, which takes seconds
        norm = default[:, 0, 0, 0] if default.is_meta else default.flatten(1).norm(dim=1)
        self.weight_g = nn.Parameter(norm.reshape(-1, 1, 1, 1))
        self.weight_v = nn.Parameter(default.clone())

    def weight(self, height: int, width: int) -> Kernel:
        """The effective weight g v / ||v||, channels last, in the form that is fastest on maps of this size."""
        parameters = self.weight_g, self.weight_v
        if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
            return for_maps(self._normed(), height, width)
        return self.computed_once(parameters, lambda: _Kernels(self._normed())).for_maps(height, width)

    def _normed(self) -> Tensor:
        norm = torch.linalg.vector_norm(self.weight_v, dim=(1, 2, 3), keepdim=True)
        return (self.weight_v * (self.weight_g / norm)).contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor, weight: Kernel) -> Tensor:
        """Same-size convolution of x with the result of `weight()` for maps of its size."""
        return convolve(x, weight)
