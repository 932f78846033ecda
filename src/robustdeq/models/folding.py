"""BatchNorm folded into the convolutions before it: the same function in eval mode, with fewer passes over memory."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from robustdeq.models.blocks import Bottleneck

Module = TypeVar("Module", bound=nn.Module)


def folded(module: Module) -> Module:
    """A copy in eval mode, for inference and gradients of the input, in which every BatchNorm has been folded."""
    result = copy.deepcopy(module).eval().requires_grad_(False)
    for part in list(result.modules()):
        if isinstance(part, nn.Sequential):
            _fold_sequence(part)
    for part in list(result.modules()):
        for name, child in part.named_children():
            if isinstance(child, Bottleneck):
                setattr(part, name, _FoldedBottleneck(child))
    return result


class _FoldedBottleneck(nn.Module):
    """`Bottleneck` without its norms; the last convolution and that of the shortcut are one, over both inputs."""

    def __init__(self, block: Bottleneck) -> None:
        super().__init__()
        self.conv1, self.conv2 = _fused(block.conv1, block.bn1), _fused(block.conv2, block.bn2)
        self.last = _fused(block.conv3, block.bn3)
        self.joined = isinstance(block.shortcut, nn.Sequential)
        if isinstance(block.shortcut, nn.Sequential):  # folded before: a single convolution
            (shortcut,) = block.shortcut
            assert isinstance(shortcut, nn.Conv2d)
            assert self.last.bias is not None
            assert shortcut.bias is not None
            self.last.weight = nn.Parameter(torch.cat([self.last.weight, shortcut.weight], 1), requires_grad=False)
            self.last.bias = nn.Parameter(self.last.bias + shortcut.bias, requires_grad=False)
            self.last.in_channels += shortcut.in_channels

    def forward(self, z: Tensor) -> Tensor:
        """The block's features."""
        y = F.relu_(self.conv2(F.relu_(self.conv1(z))))
        return F.relu_(self.last(torch.cat([y, z], 1)) if self.joined else self.last(y) + z)


def _fold_sequence(layers: nn.Sequential) -> None:
    k = 0
    while k + 1 < len(layers):
        first, second = layers[k], layers[k + 1]
        if type(first) is nn.Conv2d and type(second) is nn.BatchNorm2d:
            layers[k] = _fused(first, second)
            del layers[k + 1]
        k += 1


def _fused(conv: nn.Conv2d, bn: nn.BatchNorm2d) -> nn.Conv2d:
    fused: nn.Conv2d = fuse_conv_bn_eval(conv, bn)
    return fused.requires_grad_(False)
