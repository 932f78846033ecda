"""The layers of MDEQ."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.kernels import Kernel, Pointwise, WeightNormConv2d


def conv(in_channels: int, out_channels: int, kernel: int, stride: int = 1, *, bias: bool = False) -> nn.Conv2d:
    """Same-padded convolution with weights from N(0, 0.01^2)."""
    return initialised(nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=bias))


def initialised(layer: nn.Conv2d) -> nn.Conv2d:
    """The layer, its weights drawn anew from N(0, 0.01^2)."""
    if layer.weight.is_meta:  # nothing to draw, and drawing it would import torch's compiler, which takes seconds
        return layer
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
    """`nn.GroupNorm` that accepts groups of a single value, whose result is the bias, for any batch size.

    On the CPU with channels-last maps, PyTorch loses the variance of a group of one channel whose mean is much larger
    than its deviation (float32, 1000 times larger: errors above 1). Such groups are centred first.
    """

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.num_groups == self.num_channels:
            x = x - x.detach().mean((2, 3), keepdim=True)
        return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


def pooled(maps: Tensor) -> Tensor:
    """The mean over pixels.

    Its gradient is channels last like the maps: with mixed layouts the backward pass of ReLU takes ten times as long.
    """
    return maps.permute(0, 2, 3, 1).mean((1, 2))


class Normalize(nn.Module):
    """(x - mean) / std per channel, as a layer of the model, so that attack budgets stay in pixels."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.mean, self.std = tuple(mean), tuple(std)  # not buffers, which would be rounded before `.double()`

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
        """The effective weights of both convolutions for maps of this size."""
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
    """Takes a finer scale to a coarser one: stride-2 convolutions, each with GN, and ReLU in between."""

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
    """Takes a coarser scale to a finer one, before nearest-neighbour upsampling: 1x1 convolution, GN."""

    def __init__(self, in_channels: int, out_channels: int, groups: int) -> None:
        super().__init__(initialised(Pointwise(in_channels, out_channels)), GroupNorm(groups, out_channels))


class Bottleneck(nn.Module):
    """A block of the head: 1x1, 3x3 and 1x1 convolutions c -> hc -> hc -> 4hc with non-affine BN, and a shortcut."""

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
        """Feature maps with 4 hc channels."""
        y = F.relu_(self.bn1(self.conv1(z)))
        y = F.relu_(self.bn2(self.conv2(y)))
        return F.relu_(self.bn3(self.conv3(y)) + self.shortcut(z))
