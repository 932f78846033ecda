"""The dynamics f(z; u) that a DEQ iterates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override


class BoundDynamics(ABC):
    """f(.; u) for one forward pass: the injection is fixed, and random draws of the pass have been made."""

    u: Any
    """The injection."""

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """The next state f(z; u), shaped like z."""

    @abstractmethod
    def prepare(self, z: Tensor) -> Any:
        """The part h of f(z; u) that does not depend on u."""

    @abstractmethod
    def inject(self, h: Any, u: Any) -> Tensor:
        """f(z; u) from h = prepare(z) and any u."""

    @abstractmethod
    def rebind(self, u: Any) -> BoundDynamics:
        """The same pass with another injection."""

    def unpack(self, z: Tensor) -> Any:
        """The state in the form that the head reads; its parts may be views that are not contiguous."""
        return z

    def inject_unpacked(self, h: Any, u: Any) -> Any:
        """`inject` in the form that the head reads."""
        return self.unpack(self.inject(h, u))


class _Plain(BoundDynamics):
    """Any callable f(z, u), without a split and without random draws."""

    def __init__(self, module: nn.Module, u: Any) -> None:
        self.module = module
        self.u = u

    @override
    def __call__(self, z: Tensor) -> Tensor:
        return self.inject(z, self.u)

    @override
    def prepare(self, z: Tensor) -> Tensor:
        return z

    @override
    def inject(self, h: Tensor, u: Any) -> Tensor:
        result: Tensor = self.module(h, u)
        return result

    @override
    def rebind(self, u: Any) -> BoundDynamics:
        return _Plain(self.module, u)


class SplitDynamics(nn.Module, ABC):
    """Dynamics that know which part of f does not depend on the injection, or draw random numbers once per pass."""

    @abstractmethod
    def bind(self, u: Any, *, generator: torch.Generator | None = None) -> BoundDynamics:
        """f(.; u) for one forward pass; `generator` is the source of its random draws."""

    @abstractmethod
    def initial(self, u: Any) -> Tensor:
        """The initial state z^[0] of a pass with this injection."""

    def forward(self, z: Tensor, u: Any) -> Tensor:
        """The next state f(z; u), shaped like z."""
        return self.bind(u)(z)


def bind(dynamics: nn.Module, u: Any, *, generator: torch.Generator | None = None) -> BoundDynamics:
    """f(.; u) of any module f(z, u)."""
    if isinstance(dynamics, SplitDynamics):
        return dynamics.bind(u, generator=generator)
    return _Plain(dynamics, u)


def initial_state(dynamics: nn.Module, u: Any) -> Tensor:
    """z^[0]: `dynamics.initial(u)` if there is such a method, otherwise zeros like the injection."""
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
