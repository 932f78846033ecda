"""Weight-normed convolutions whose effective weight is computed once per pass, or once for many passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.kernels.convolution import Kernel, convolve, for_maps
from robustdeq.models.kernels.winograd import Transform
from robustdeq.models.modes import KeepsWeights


class KeptWeight:
    """An effective weight, the kernels made from it, and the parameters that it was computed from.

    A changed parameter is recognised by its object, memory address and version counter. Writes that bypass the version
    counter (`.data`, NumPy) go unnoticed while the scope of `constant_weights` is open. The memory is held, so that no
    other parameter can be allocated at the same address.
    """

    def __init__(self, g: Tensor, v: Tensor, weight: Tensor) -> None:
        self._parameters = [(p, p.detach(), p._version) for p in (g, v)]
        self._weight, self._transform = weight, Transform(weight)
        self._kernels: dict[tuple[int, int], Kernel] = {}

    def is_of(self, *parameters: Tensor) -> bool:
        """Whether the weight was computed from these parameters and they have not changed since."""
        return all(
            p is own and p._version == version and p.data_ptr() == memory.data_ptr()
            for p, (own, memory, version) in zip(parameters, self._parameters, strict=True)
        )

    def for_maps(self, height: int, width: int) -> Kernel:
        """The kernel for maps of this size."""
        size = height, width
        if size not in self._kernels:
            self._kernels[size] = for_maps(self._weight, height, width, self._transform)
        return self._kernels[size]


class WeightNormConv2d(KeepsWeights, nn.Module):
    """Convolution without bias whose weight is g v / ||v|| per output channel.

    The weight is an argument of `forward`: a pass computes it once and calls the layer many times. While a scope of
    `constant_weights` is open, passes share it too.
    """

    kept: KeptWeight | None

    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        default = nn.Conv2d(in_channels, out_channels, kernel, bias=False).weight.detach()
        self.padding = kernel // 2
        self.weight_g = nn.Parameter(default.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1))
        self.weight_v = nn.Parameter(default.clone())

    def weight(self, height: int, width: int) -> Kernel:
        """The effective weight g v / ||v||, channels last, in the form that is fastest on maps of this size."""
        g, v = self.weight_g, self.weight_v
        trained = torch.is_grad_enabled() and (g.requires_grad or v.requires_grad)
        if not self.open_scopes or trained or g.is_inference() or v.is_inference():
            return for_maps(self._normed(), height, width)
        kept = self.kept
        if kept is None or not kept.is_of(g, v):
            with torch.inference_mode(False), torch.no_grad():  # the weight may outlive a caller in inference mode
                self.kept = kept = KeptWeight(g, v, self._normed())
        return kept.for_maps(height, width)

    def _normed(self) -> Tensor:
        norm = torch.linalg.vector_norm(self.weight_v, dim=(1, 2, 3), keepdim=True)
        return (self.weight_v * (self.weight_g / norm)).contiguous(memory_format=torch.channels_last)

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "open_scopes": 0, "kept": None}  # copies and pickles are in no scope

    def forward(self, x: Tensor, weight: Kernel) -> Tensor:
        """Same-size convolution of x with the result of `weight()` for maps of its size."""
        return convolve(x, weight)
