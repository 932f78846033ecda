"""The encoder of MDEQ."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustdeq.models.checks import check_channels
from robustdeq.models.mdeq.blocks import Normalize, conv_bn_relu
from robustdeq.models.mdeq.config import MDEQConfig
from robustdeq.models.residual import BasicBlock


class Encoder(nn.Module):
    """Pixels to injection: optional normalisation, the stem, possibly with residual blocks, and a 1x1 convolution.

    The 1x1 convolution is left out where the image is not downsampled and there are at most two scales.
    """

    def __init__(self, config: MDEQConfig) -> None:
        super().__init__()
        self.in_channels, self.divisor = config.in_channels, config.divisor
        last, times = config.channels[0], config.downsample
        self.normalize = (
            Normalize(config.mean, config.std) if config.mean is not None and config.std is not None else nn.Identity()
        )
        stem, before = [], config.in_channels
        for k in range(config.stem_convolutions):
            width = config.encoder_channels[k] if k < len(config.encoder_channels) else last
            stem += conv_bn_relu(before, width, 3, 2 if times > k else 1)
            before = width
            blocks = config.encoder_blocks[k] if k < len(config.encoder_blocks) else 0
            stem += [BasicBlock(width, width, 1) for _ in range(blocks)]
        self.stem = nn.Sequential(*stem)
        injected = times > 0 or len(config.channels) > 2
        self.injection = nn.Sequential(*conv_bn_relu(last, last, 1)) if injected else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The injection u(x), channels last."""
        self._check(x)
        x = self.normalize(x).contiguous(memory_format=torch.channels_last)
        u: Tensor = self.injection(self.stem(x))
        return u

    def _check(self, x: Tensor) -> None:
        check_channels(x, self.in_channels)
        height, width = x.shape[2:]
        if height % self.divisor or width % self.divisor or not height or not width:
            raise ValueError(
                f"image size {height}x{width} does not fit: height and width must be multiples of {self.divisor} so "
                "that every scale halves evenly; pad or resize the images"
            )
