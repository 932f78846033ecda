"""The head of MDEQ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from robustdeq.models.mdeq.blocks import Bottleneck, conv_bn_relu, pooled
from robustdeq.models.mdeq.config import MDEQConfig


class Head(nn.Module):
    """Maps of all scales to logits: bottlenecks, summed from fine to coarse, 1x1 convolution, pooling, linear layer."""

    def __init__(self, config: MDEQConfig) -> None:
        super().__init__()
        heads = config.head_channels
        self.blocks = nn.ModuleList(Bottleneck(c, h) for c, h in zip(config.channels, heads, strict=True))
        self.down = nn.ModuleList(
            nn.Sequential(*conv_bn_relu(4 * a, 4 * b, 3, 2, bias=True)) for a, b in pairwise(heads)
        )
        self.final = nn.Sequential(*conv_bn_relu(4 * heads[-1], config.final_channels, 1, bias=True))
        self.linear = nn.Linear(config.final_channels, config.num_classes)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Logits (B, C) from one map per scale."""
        maps = [m.contiguous(memory_format=torch.channels_last) for m in maps]
        y = self.blocks[0](maps[0])
        for block, down, z in zip(self.blocks[1:], self.down, maps[1:], strict=True):
            y = block(z) + down(y)
        logits: Tensor = self.linear(pooled(self.final(y)))
        return logits
