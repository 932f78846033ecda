"""Threat models: how far an attacker may move an image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Threat(ABC):
    """A ball of radius eps around each image, in pixel space; pixels stay in [0, 1]."""

    eps: float

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise ValueError(f"eps must be >= 0, got {self.eps}")

    @abstractmethod
    def into_ball(self, x: Tensor, origin: Tensor) -> Tensor:
        """The nearest point of the ball around origin, whatever its pixels."""

    @abstractmethod
    def ascent(self, gradient: Tensor) -> Tensor:
        """The unit step that increases a loss with this gradient most."""

    @abstractmethod
    def random_offset(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A uniformly drawn point of the ball, minus its centre."""

    @abstractmethod
    def distance(self, x: Tensor, origin: Tensor) -> Tensor:
        """Per image, in this threat's norm."""

    def project(self, x: Tensor, origin: Tensor) -> Tensor:
        """Into the ball, then into [0, 1]."""
        return self.into_ball(x, origin).clamp(0, 1)

    def random_start(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A random point of the ball, with pixels in [0, 1]."""
        return (x + self.random_offset(x, generator)).clamp(0, 1)

    def contains(self, x: Tensor, origin: Tensor, *, tolerance: float = 1e-6) -> Tensor:
        """Per image: inside the ball and [0, 1], up to rounding."""
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

    def into_ball(self, x: Tensor, origin: Tensor) -> Tensor:
        """Clip to [origin - eps, origin + eps]."""
        return torch.minimum(torch.maximum(x, origin - self.eps), origin + self.eps)

    def ascent(self, gradient: Tensor) -> Tensor:
        """The sign."""
        return gradient.sign()

    def random_offset(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform in [-eps, eps] per pixel."""
        return _uniform(x, generator).mul_(2).sub_(1).mul_(self.eps)

    def distance(self, x: Tensor, origin: Tensor) -> Tensor:
        """The largest change of a pixel."""
        return (x - origin).flatten(1).abs().amax(1)


@dataclass(frozen=True)
class L2(Threat):
    """The Euclidean norm of the change is at most eps."""

    def into_ball(self, x: Tensor, origin: Tensor) -> Tensor:
        """Shrink the change."""
        change = x - origin
        norm = _norm(change)
        return origin + change * (self.eps / norm.clamp_min(torch.finfo(x.dtype).tiny)).clamp_max(1)

    def ascent(self, gradient: Tensor) -> Tensor:
        """The normalised gradient."""
        tiny = torch.finfo(gradient.dtype).tiny
        largest = gradient.flatten(1).abs().amax(1).reshape(-1, *[1] * (gradient.ndim - 1))
        scaled = gradient / largest.clamp_min(tiny)  # squares of the tiny gradients of confident predictions are zero
        return scaled / _norm(scaled).clamp_min(tiny)

    def random_offset(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A random direction, with a radius that makes the point uniform in the ball."""
        direction = torch.randn(x.shape, dtype=x.dtype, device=generator.device, generator=generator)
        radius = torch.rand(len(x), dtype=x.dtype, device=generator.device, generator=generator)
        radius = self.eps * radius ** (1 / max(1, x[0].numel()))
        return (self.ascent(direction) * radius.reshape(-1, *[1] * (x.ndim - 1))).to(x.device)

    def distance(self, x: Tensor, origin: Tensor) -> Tensor:
        """The norm of the change."""
        return _norm(x - origin).flatten()


def _norm(x: Tensor) -> Tensor:
    """Per image, shaped to divide x."""
    return torch.linalg.vector_norm(x.flatten(1), dim=1).reshape(-1, *[1] * (x.ndim - 1))


def _uniform(x: Tensor, generator: torch.Generator) -> Tensor:
    """Drawn where the generator lives, so that a CPU generator gives the same attack on every device."""
    return torch.rand(x.shape, dtype=x.dtype, device=generator.device, generator=generator).to(x.device)
