"""Labelled images in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """Pixels as uint8, a quarter of their size as floats, and their labels."""

    pixels: Tensor
    """(N, C, H, W), uint8."""
    labels: Tensor
    """(N,), int64."""
    classes: tuple[str, ...]
    """Name of each label."""

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.labels.dtype != torch.int64:
            raise TypeError(f"expected uint8 pixels and int64 labels, got {self.pixels.dtype} and {self.labels.dtype}")
        if self.pixels.ndim != 4:
            raise ValueError(f"expected pixels of shape (N, C, H, W), got {tuple(self.pixels.shape)}")
        if self.labels.shape != self.pixels.shape[:1]:
            raise ValueError(f"expected {len(self.pixels)} labels, one per image, got shape {tuple(self.labels.shape)}")
        if self.pixels.device != self.labels.device:
            raise ValueError(f"the pixels are on {self.pixels.device}, the labels on {self.labels.device}")
        if self.labels.device.type == "cpu" and len(self):  # on other devices the check would wait for the device
            low, high = int(self.labels.min()), int(self.labels.max())
            if low < 0 or high >= len(self.classes):
                raise ValueError(f"labels range from {low} to {high}, but there are {len(self.classes)} classes")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.pixels.shape[1:]))
        return f"Images({len(self)} of {size}, {len(self.classes)} classes, on {self.pixels.device})"

    def digest(self) -> str:
        """A hash of the images, their labels and their order."""
        result = hashlib.blake2b(repr(tuple(self.pixels.shape)).encode(), digest_size=16)
        for part in (self.pixels, self.labels):
            result.update(part.cpu().contiguous().numpy().data)
        return result.hexdigest()

    def to(self, device: torch.device | str) -> Images:
        """The same images on another device."""
        return replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))

    def subset(self, which: slice | Tensor | Sequence[int]) -> Images:
        """Some of the images, in the order of the indices; a slice shares memory, indices copy."""
        return replace(self, pixels=self.pixels[which], labels=self.labels[which])

    def pixels01(
        self, which: slice | Tensor | Sequence[int] = slice(None), dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "n C H W"]:
        """Pixels of all or some images as floats in [0, 1]: value / 255."""
        return self.pixels[which].to(dtype) / 255


Splits = tuple[Images, Images, Images]
"""Training, validation, test."""
