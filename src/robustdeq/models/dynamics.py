"""f(z; u): what a DEQ iterates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class BoundDynamics(ABC):
    """f(.; u) for one forward pass: the injection is given, whatever is drawn once per pass has been drawn."""

    u: Any
    """The injection."""

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """f(z; u)."""

    @abstractmethod
    def prepare(self, z: Tensor) -> Any:
        """The part h of f that does not depend on u."""

    @abstractmethod
    def inject(self, h: Any, u: Any) -> Tensor:
        """The rest of f, from h = prepare(z) and any u."""

    @abstractmethod
    def rebind(self, u: Any) -> BoundDynamics:
        """The same pass with another injection."""

    def unpack(self, z: Tensor) -> Any:
        """The state as the head reads it; its parts may be views that are not contiguous."""
        return z

    def inject_unpacked(self, h: Any, u: Any) -> Any:
        """f as the head reads it, from h = prepare(z) and any u."""
        return self.unpack(self.inject(h, u))

    def reordered(self) -> BoundDynamics:
        """The same pass over states whose entries lie in the order that is fastest, for whoever reads logits alone."""
        return self


class _Plain(BoundDynamics):
    """Any callable f(z, u): nothing can be prepared, nothing is drawn."""

    def __init__(self, module: nn.Module, u: Any) -> None:
        self.module = module
        self.u = u

    def __call__(self, z: Tensor) -> Tensor:
        result: Tensor = self.module(z, self.u)
        return result

    def prepare(self, z: Tensor) -> Tensor:
        return z

    def inject(self, h: Tensor, u: Any) -> Tensor:
        result: Tensor = self.module(h, u)
        return result

    def rebind(self, u: Any) -> BoundDynamics:
        return _Plain(self.module, u)


def bind(dynamics: nn.Module, u: Any, *, generator: torch.Generator | None = None) -> BoundDynamics:
    """f(.; u) of any module f(z, u); `SplitDynamics` bind themselves."""
    if isinstance(dynamics, SplitDynamics):
        return dynamics.bind(u, generator=generator)
    return _Plain(dynamics, u)


class SplitDynamics(nn.Module, ABC):
    """Dynamics that know which part of f the injection does not touch, or draw something once per pass."""

    @abstractmethod
    def bind(self, u: Any, *, generator: torch.Generator | None = None) -> BoundDynamics:
        """f(.; u) for one forward pass; `generator` is the source of whatever is drawn."""

    @abstractmethod
    def initial(self, u: Any) -> Tensor:
        """z^[0] for a pass with this injection."""

    def forward(self, z: Tensor, u: Any) -> Tensor:
        """f(z; u)."""
        return self.bind(u)(z)


def initial_state(dynamics: nn.Module, u: Any) -> Tensor:
    """z^[0]: what the dynamics say, else zeros like the injection."""
    initial = getattr(dynamics, "initial", None)
    if callable(initial):
        result: Tensor = initial(u)
        return result
    if isinstance(u, Tensor):
        return torch.zeros_like(u)
    raise TypeError(
        f"the encoder returned {type(u).__name__}, not a tensor, so the shape of the state is unknown: "
        f"give {type(dynamics).__name__} a method initial(u) that returns z0 (batch first)"
    )
