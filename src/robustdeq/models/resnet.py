"""The paper's baseline: a residual network for small images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustdeq.models.checks import MOST_SCALES, check_channels, check_images, check_sizes
from robustdeq.models.mdeq.blocks import pooled
from robustdeq.models.pretrained import Architecture, Pretrained
from robustdeq.models.residual import BasicBlock


class ResNet(Pretrained, nn.Module):
    """The CIFAR variant of ResNet: 3x3 stem without pooling, one stage per width; all but the first halve the size.

    The defaults give ResNet-18 with 11.2 million parameters.
    """

    def __init__(
        self,
        *,
        num_classes: int = 10,
        in_channels: int = 3,
        widths: Sequence[int] = (64, 128, 256, 512),
        blocks: Sequence[int] = (2, 2, 2, 2),
    ) -> None:
        super().__init__()
        check_sizes("num_classes and in_channels", [num_classes], [in_channels])
        check_sizes("widths", [*widths], most_entries=MOST_SCALES)
        check_sizes("blocks", [*blocks], most_entries=MOST_SCALES, largest=1000)
        if not widths or len(widths) != len(blocks):
            raise ValueError(f"widths and blocks need one entry per stage: got {tuple(widths)} and {tuple(blocks)}")
        self.metadata = {}
        self.in_channels = in_channels
        self.conv1 = nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        stages, previous = [], widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for block in range(count):
                stages.append(BasicBlock(previous, width, 2 if stage > 0 and block == 0 else 1))
                previous = width
        self.blocks = nn.Sequential(*stages)
        self.linear = nn.Linear(previous, num_classes)
        sizes = {"num_classes": num_classes, "in_channels": in_channels, "widths": [*widths], "blocks": [*blocks]}
        self.architecture = Architecture("resnet", sizes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C)."""
        check_images(self, x)
        check_channels(x, self.in_channels)
        y = F.relu_(self.bn1(self.conv1(x.contiguous(memory_format=torch.channels_last))))
        logits: Tensor = self.linear(pooled(self.blocks(y)))
        return logits
