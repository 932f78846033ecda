"""Threat models: how far an attacker may move an image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import SupportsFloat

import torch
from torch import Tensor
from typing_extensions import override


@dataclass(frozen=True)
class Threat(ABC):
    """A ball of radius eps around each image, in pixel space; pixels stay in [0, 1]."""

    eps: float

    def __post_init__(self) -> None:
        if isinstance(self.eps, bool) or not isinstance(self.eps, SupportsFloat):
            raise TypeError(f"eps must be a number such as 8 / 255, got {self.eps!r}")
        if not 0 <= self.eps < 2**31:  # in L2 it may be larger than an image
            raise ValueError(f"eps must be >= 0 and finite, got {self.eps!s:.40}")

    @abstractmethod
    def into_ball(self, x: Tensor, origin: Tensor) -> Tensor:
        """The nearest point of the ball around origin; its pixels may lie outside [0, 1]."""

    @abstractmethod
    def ascent(self, gradient: Tensor) -> Tensor:
        """The step of unit norm that increases a loss with this gradient most."""

    @abstractmethod
    def random_offset(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A point drawn uniformly from the ball, minus its centre."""

    @abstractmethod
    def distance(self, x: Tensor, origin: Tensor) -> Tensor:
        """Distance of each image from its origin in this threat's norm, (B,)."""

    def project(self, x: Tensor, origin: Tensor) -> Tensor:
        """Project into the ball, then into [0, 1]."""
        return self.into_ball(x, origin).clamp(0, 1)

    def random_start(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A random point of the ball, with pixels in [0, 1]."""
        return (x + self.random_offset(x, generator)).clamp(0, 1)

    def contains(self, x: Tensor, origin: Tensor, *, tolerance: float = 1e-6) -> Tensor:
        """Whether each image lies in the ball and in [0, 1], up to rounding, (B,)."""
        inside = self.distance(x, origin) <= self.eps + tolerance
        pixels = x.flatten(1)
        return inside & (pixels.amin(1) >= -tolerance) & (pixels.amax(1) <= 1 + tolerance)


@dataclass(frozen=True)
class Linf(Threat):
    """Every pixel moves by at most eps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps > 1:
            raise ValueError(f"pixels lie in [0, 1], so eps is at most 1, got {self.eps:g}; 8 of 255 is 8/255")

    @override
    def into_ball(self, x: Tensor, origin: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, origin - self.eps), origin + self.eps)

    @override
    def ascent(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    @override
    def random_offset(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return _uniform(x, generator).mul_(2).sub_(1).mul_(self.eps)

    @override
    def distance(self, x: Tensor, origin: Tensor) -> Tensor:
        return (x - origin).flatten(1).abs().amax(1)


@dataclass(frozen=True)
class L2(Threat):
    """The Euclidean norm of the change is at most eps."""

    @override
    def into_ball(self, x: Tensor, origin: Tensor) -> Tensor:
        change = x - origin
        norm = _norm(change)
        return origin + change * (self.eps / norm.clamp_min(torch.finfo(x.dtype).tiny)).clamp_max(1)

    @override
    def ascent(self, gradient: Tensor) -> Tensor:
        tiny = torch.finfo(gradient.dtype).tiny
        largest = gradient.flatten(1).abs().amax(1).reshape(-1, *[1] * (gradient.ndim - 1))
        scaled = gradient / largest.clamp_min(tiny)  # the squares of very small gradients underflow
        return scaled / _norm(scaled).clamp_min(tiny)

    @override
    def random_offset(self, x: Tensor, generator: torch.Generator) -> Tensor:
        direction = torch.randn(x.shape, dtype=x.dtype, device=generator.device, generator=generator)
        radius = torch.rand(len(x), dtype=x.dtype, device=generator.device, generator=generator)
        radius = self.eps * radius ** (1 / max(1, x[0].numel()))
        return (self.ascent(direction) * radius.reshape(-1, *[1] * (x.ndim - 1))).to(x.device)

    @override
    def distance(self, x: Tensor, origin: Tensor) -> Tensor:
        return _norm(x - origin).flatten()


def _norm(x: Tensor) -> Tensor:
    """Euclidean norm of each image, shaped (B, 1, ..., 1) to divide x."""
    return torch.linalg.vector_norm(x.flatten(1), dim=1).reshape(-1, *[1] * (x.ndim - 1))


def _uniform(x: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers, drawn on the generator's device: a CPU generator gives the same attack on every device."""
    return torch.rand(x.shape, dtype=x.dtype, device=generator.device, generator=generator).to(x.device)
