"""Random crops and flips of training images, a whole batch at a time, on its device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class CropFlipDraws:
    """The random numbers of a batch: crop corner and flip of each image."""

    top: Int64[Tensor, " B"]
    left: Int64[Tensor, " B"]
    mirrored: Bool[Tensor, " B"]

    def __getitem__(self, which: slice) -> CropFlipDraws:
        """The draws of some images; a process takes its share of a batch that was drawn for all."""
        return CropFlipDraws(top=self.top[which], left=self.left[which], mirrored=self.mirrored[which])


@dataclass(frozen=True)
class RandomCropFlip:
    """A random crop of the zero-padded image, of the image's own size, then a horizontal flip with probability 1/2.

    All random numbers come from the generator, on its device: a CPU generator gives the same images everywhere.
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must be >= 0, got {self.padding}")

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Augments a batch; returns the same tensor if both changes are switched off."""
        return self.apply(pixels, self.draw(len(pixels), generator))

    def draw(self, count: int, generator: torch.Generator) -> CropFlipDraws:
        """Draws crop corners in the padded image and flips; a change that is switched off draws nothing."""
        device = generator.device
        corners = torch.full((2, count), self.padding, device=device)
        if self.padding:
            corners = torch.randint(2 * self.padding + 1, (2, count), generator=generator, device=device)
        mirrored = torch.zeros(count, dtype=torch.bool, device=device)
        if self.flip:
            mirrored = torch.randint(2, (count,), generator=generator, device=device) == 1
        return CropFlipDraws(top=corners[0], left=corners[1], mirrored=mirrored)

    def apply(self, pixels: Tensor, draws: CropFlipDraws) -> Tensor:
        """Applies given draws to a batch (B, C, H, W)."""
        if pixels.ndim != 4 or len(pixels) != len(draws.top):
            raise ValueError(f"expected {len(draws.top)} images (B, C, H, W), got shape {tuple(pixels.shape)}")
        if not self.padding and not self.flip:
            return pixels
        device, (_, channels, height, width) = pixels.device, pixels.shape
        padded = F.pad(pixels, (self.padding,) * 4)
        row, column = torch.arange(height, device=device), torch.arange(width, device=device)
        mirrored = draws.mirrored.to(device)[:, None]
        rows = draws.top.to(device)[:, None] + row
        columns = draws.left.to(device)[:, None] + torch.where(mirrored, width - 1 - column, column)
        source = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).flatten(1)[:, None]
        return padded.flatten(2).gather(2, source.expand(-1, channels, -1)).view(pixels.shape)
