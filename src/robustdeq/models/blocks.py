"""The layers of MDEQ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustdeq.models.convolution import Kernel, Pointwise, convolve, for_maps
from robustdeq.models.winograd import Transform


class KeptWeight:
    """An effective weight, what was made of it, and the parameters it was computed from.

    Their objects, memory and versions tell a changed parameter; not what bypasses versions, such as fused optimizers
    and writing through `.data` or NumPy. The memory is held, so that no other parameter can come to lie there.
    """

    def __init__(self, g: Tensor, v: Tensor, weight: Tensor) -> None:
        self._parameters = [(p, p.detach(), p._version) for p in (g, v)]
        self._weight, self._transform = weight, Transform(weight)
        self._kernels: dict[tuple[int, int], Kernel] = {}

    def is_of(self, *parameters: Tensor) -> bool:
        """Whether these are the parameters, unchanged."""
        return all(
            p is own and p._version == version and p.data_ptr() == memory.data_ptr()
            for p, (own, memory, version) in zip(parameters, self._parameters, strict=True)
        )

    def for_maps(self, height: int, width: int) -> Kernel:
        """The weight for maps of this size."""
        size = height, width
        if size not in self._kernels:
            self._kernels[size] = for_maps(self._weight, height, width, self._transform)
        return self._kernels[size]


class WeightNormConv2d(nn.Module):
    """Convolution without bias whose weight is g v / ||v|| per output channel.

    The weight is an argument of `forward`: a pass computes it once and calls the layer many times. Inside
    `constant_weights` passes share it, too.
    """

    keeping = 0
    """How many scopes of `constant_weights` it is in."""
    kept: KeptWeight | None = None

    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        default = nn.Conv2d(in_channels, out_channels, kernel, bias=False).weight.detach()
        self.padding = kernel // 2
        self.weight_g = nn.Parameter(default.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1))
        self.weight_v = nn.Parameter(default.clone())

    def weight(self, height: int, width: int) -> Kernel:
        """G v / ||v||, channels last, for maps of this size."""
        g, v = self.weight_g, self.weight_v
        trained = torch.is_grad_enabled() and (g.requires_grad or v.requires_grad)
        if not self.keeping or trained or g.is_inference() or v.is_inference():
            return for_maps(self._normed(), height, width)
        kept = self.kept
        if kept is None or not kept.is_of(g, v):
            with torch.inference_mode(False), torch.no_grad():  # an inference-mode caller is not the last
                self.kept = kept = KeptWeight(g, v, self._normed())
        return kept.for_maps(height, width)

    def _normed(self) -> Tensor:
        norm = torch.linalg.vector_norm(self.weight_v, dim=(1, 2, 3), keepdim=True)
        return (self.weight_v * (self.weight_g / norm)).contiguous(memory_format=torch.channels_last)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "keeping": 0, "kept": None}  # copies and pickles are in no scope

    def forward(self, x: Tensor, weight: Kernel) -> Tensor:
        """Same-size convolution with a weight made by `weight()` for maps of its size."""
        return convolve(x, weight)


@contextmanager
def constant_weights(module: nn.Module) -> Iterator[None]:
    """Inside, constant effective weights are computed once: for many passes between which no parameter changes."""
    layers = [m for m in module.modules() if isinstance(m, WeightNormConv2d)]
    for layer in layers:
        layer.keeping += 1
    try:
        yield
    finally:
        for layer in layers:
            layer.keeping -= 1
            if not layer.keeping:
                layer.kept = None


def conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1, *, bias: bool = False) -> nn.Conv2d:
    """Same-padded convolution, initialised N(0, 0.01^2) as MDEQ's are."""
    return initialised(nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=bias))


def initialised(layer: nn.Conv2d) -> nn.Conv2d:
    """The layer with N(0, 0.01^2) in it."""
    nn.init.normal_(layer.weight, std=0.01)
    if layer.bias is not None:
        nn.init.normal_(layer.bias, std=0.01)
    return layer


def conv_bn_relu(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, *, bias: bool = False
) -> list[nn.Module]:
    """Convolution, BatchNorm, ReLU."""
    return [
        conv(in_channels, out_channels, kernel, stride, bias=bias),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    ]


class GroupNorm(nn.GroupNorm):
    """`nn.GroupNorm` that takes a single value per group, where it is the bias, whatever the batch.

    On the CPU, channels last, PyTorch loses the variance of a group of one channel whose mean is much larger than its
    deviation (float32, 1000 times: errors above 1). Such a group is centred first, which changes nothing else.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalised groups of channels."""
        if self.num_groups == self.num_channels:
            x = x - x.detach().mean((2, 3), keepdim=True)
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


def pooled(maps: Tensor) -> Tensor:
    """The mean over pixels; its gradient lies channels last as the maps do: in mixed layouts ReLU's takes ten times."""
    return maps.permute(0, 2, 3, 1).mean((1, 2))


class Normalize(nn.Module):
    """(x - mean) / std per channel; budgets stay in pixel space because this is a layer of the model."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.mean, self.std = tuple(mean), tuple(std)  # no buffers: those would be rounded before `.double()`

    def forward(self, x: Tensor) -> Tensor:
        """Normalised pixels."""
        mean, std = (x.new_tensor(values).reshape(-1, 1, 1) for values in (self.mean, self.std))
        return (x - mean) / std


class ResidualBlock(nn.Module):
    """One scale's block of f: a = ReLU(GN1(conv1 z)); b = drop(conv2 a) + u; GN3(ReLU(GN2(b) + z))."""

    def __init__(self, channels: int, expansion: int, groups: int) -> None:
        super().__init__()
        self.conv1 = WeightNormConv2d(channels, expansion * channels, 3)
        self.gn1 = GroupNorm(groups, expansion * channels)
        self.conv2 = WeightNormConv2d(expansion * channels, channels, 3)
        self.gn2 = GroupNorm(groups, channels)
        self.gn3 = GroupNorm(groups, channels)

    def weights(self, height: int, width: int) -> tuple[Kernel, Kernel]:
        """The two effective weights, for a pass over maps of this size."""
        return self.conv1.weight(height, width), self.conv2.weight(height, width)

    def before_injection(self, z: Tensor, weights: tuple[Kernel, Kernel], mask: Tensor | None) -> Tensor:
        """drop(conv2(ReLU(GN1(conv1 z))))."""
        a = F.relu_(self.gn1(self.conv1(z, weights[0])))
        b = self.conv2(a, weights[1])
        return b if mask is None else b * mask

    def after_injection(self, b: Tensor, z: Tensor) -> Tensor:
        """GN3(ReLU(GN2(b) + z))."""
        out: Tensor = self.gn3(F.relu_(self.gn2(b).add_(z)))
        return out


class Down(nn.Sequential):
    """A finer scale into a coarser one: stride-2 convolutions, GN after each, ReLU between."""

    def __init__(self, in_channels: int, out_channels: int, times: int, groups: int) -> None:
        layers: list[nn.Module] = []
        for k in range(times):
            last = k == times - 1
            width = out_channels if last else in_channels
            layers += [conv(in_channels, width, 3, 2), GroupNorm(groups, width)]
            if not last:
                layers.append(nn.ReLU(inplace=True))
        super().__init__(*layers)


class Up(nn.Sequential):
    """A coarser scale into a finer one, before the nearest upsampling: conv1x1, GN."""

    def __init__(self, in_channels: int, out_channels: int, groups: int) -> None:
        super().__init__(initialised(Pointwise(in_channels, out_channels)), GroupNorm(groups, out_channels))


class Bottleneck(nn.Module):
    """The head's block: 1x1, 3x3, 1x1 convolutions c -> hc -> 4hc with non-affine BN, and a shortcut."""

    def __init__(self, in_channels: int, head_channels: int) -> None:
        super().__init__()
        out_channels = 4 * head_channels
        self.conv1 = conv(in_channels, head_channels, 1)
        self.bn1 = nn.BatchNorm2d(head_channels, affine=False)
        self.conv2 = conv(head_channels, head_channels, 3)
        self.bn2 = nn.BatchNorm2d(head_channels, affine=False)
        self.conv3 = conv(head_channels, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels, affine=False)
        self.shortcut = (
            nn.Identity()
            if in_channels == out_channels
            else nn.Sequential(conv(in_channels, out_channels, 1), nn.BatchNorm2d(out_channels))
        )

    def forward(self, z: Tensor) -> Tensor:
        """The block's features."""
        y = F.relu_(self.bn1(self.conv1(z)))
        y = F.relu_(self.bn2(self.conv2(y)))
        return F.relu_(self.bn3(self.conv3(y)) + self.shortcut(z))
