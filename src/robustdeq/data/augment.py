"""Random crops and flips of training images, a whole batch at a time, on its device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Int64
from torch import Tensor


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

    def draw(self, count: int, generator: torch.Generator) -> Int64[Tensor, "B 3"]:
        """Draws each image's crop corner in the padded image (top, left) and whether it is mirrored (0 or 1).

        A change that is switched off draws nothing.
        """
        device = generator.device
        corners = torch.full((2, count), self.padding, device=device)
        if self.padding:
            corners = torch.randint(2 * self.padding + 1, (2, count), generator=generator, device=device)
        mirrored = torch.zeros(count, dtype=torch.int64, device=device)
        if self.flip:
            mirrored = torch.randint(2, (count,), generator=generator, device=device)
        return torch.stack([*corners, mirrored], 1)

    def apply(self, pixels: Tensor, draws: Int64[Tensor, "B 3"]) -> Tensor:
        """Applies given draws to a batch (B, C, H, W)."""
        if pixels.ndim != 4 or len(pixels) != len(draws):
            raise ValueError(f"expected {len(draws)} images (B, C, H, W), got shape {tuple(pixels.shape)}")
        if not self.padding and not self.flip:
            return pixels
        device, (_, channels, height, width) = pixels.device, pixels.shape
        padded = F.pad(pixels, (self.padding,) * 4)
        row, column = torch.arange(height, device=device), torch.arange(width, device=device)
        top, left, mirrored = draws.to(device).T[..., None]
        rows, columns = top + row, left + torch.where(mirrored == 1, width - 1 - column, column)
        source = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).flatten(1)[:, None]
        return padded.flatten(2).gather(2, source.expand(-1, channels, -1)).view(pixels.shape)
