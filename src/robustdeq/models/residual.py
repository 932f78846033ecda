"""The residual block of ResNets, which an encoder may have too."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut (He et al. 2016)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and in_channels == channels
            else nn.Sequential(nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps."""
        y = F.relu_(self.bn1(self.conv1(x)))
        return F.relu_(self.bn2(self.conv2(y)) + self.shortcut(x))
