"""The base class of all oracles, and the oracle that differentiates the predictor itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.modes import attacking
from robustdeq.models.straight import straight_through

Values = Literal["surrogate", "deployed"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Oracle(ABC):
    """A callable from pixels to logits with autograd, on which any attack library runs unmodified.

    The gradient is always the surrogate's. The values are the surrogate's too, or those of the deployed predictor
    (`values="deployed"`, straight-through). An attack that steers by the values it sees needs the deployed ones.
    """

    values: Values = "surrogate"

    def __post_init__(self) -> None:
        if self.values not in ("surrogate", "deployed"):
            raise ValueError(f"values must be 'surrogate' or 'deployed', got {self.values!r}")

    @property
    def name(self) -> str:
        """Kind and settings, without the predictor and without defaults, such as UnrolledState(state=2)."""
        given = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.repr and f.default is not MISSING and getattr(self, f.name) != f.default
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @property
    @abstractmethod
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor."""

    @abstractmethod
    def estimate(self, x: Tensor) -> Tensor:
        """The surrogate's logits, differentiable in x; called in eval mode, with parameters that need no gradients."""

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The surrogate's logits and the deployed ones; overridden where one solve gives both."""
        surrogate = self.estimate(x)
        with torch.no_grad():
            return surrogate, self.target(x.detach())

    def for_attack(self, count: int) -> Oracle:
        """The oracle for one attack on a batch of `count` images; overridden where passes remember something."""
        return self

    def forget(self, places: Tensor) -> None:  # noqa: B027 (most oracles remember nothing)
        """Called where a new run (a restart, a target) begins for the images at these positions of the batch."""

    def for_rows(self, places: Tensor) -> Oracle:
        """The oracle for some images of a batch; overridden where images have settings of their own.

        Args:
            places: Positions of the images in the batch.
        """
        return self

    def __call__(self, x: Tensor) -> Tensor:
        """Logits: the chosen values with the surrogate's gradient."""
        if self.values == "surrogate":
            return self.surrogate(x)
        if not torch.is_grad_enabled() or not x.requires_grad:
            return self.deployed(x)
        surrogate, deployed = self.both(x)
        return straight_through(deployed, surrogate)

    def surrogate(self, x: Tensor) -> Tensor:
        """The surrogate's own logits, differentiable."""
        with self.prepared():
            return self.estimate(x)

    def deployed(self, x: Tensor) -> Tensor:
        """The deployed predictor's logits, without gradients."""
        with self.prepared(), torch.no_grad():
            return self.target(x.detach())

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The surrogate's logits (differentiable) and the deployed ones (not), from one solve where possible."""
        with self.prepared():
            surrogate, deployed = self.estimate_and_deploy(x)
        return surrogate, deployed.detach()

    def module(self) -> nn.Module:
        """The oracle as a module in eval mode, for attack libraries that accept modules only.

        A library cannot change the model's weights, mode or `requires_grad` flags through it: its only parameter is an
        empty one that says on which device images belong.
        """
        return _AsModule(self).eval()

    def prepared(self) -> AbstractContextManager[Any]:
        """Context with the model in eval mode and without gradients for parameters; restores both at the end."""
        return attacking(self.target) if isinstance(self.target, nn.Module) else nullcontext()


class _AsModule(nn.Module):
    def __init__(self, oracle: Oracle) -> None:
        super().__init__()
        self.oracle = oracle
        weights = oracle.target.parameters() if isinstance(oracle.target, nn.Module) else iter(())
        self.place = nn.Parameter(torch.empty(0, device=getattr(next(weights, None), "device", None)), False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        return self.oracle(x)


@dataclass(frozen=True, eq=False)
class Direct(Oracle):
    """The deployed predictor's own autograd: for models without dynamics, and for a defence as it differentiates."""

    predictor: Callable[[Tensor], Tensor]

    @property
    @override
    def target(self) -> Callable[[Tensor], Tensor]:
        return self.predictor

    @override
    def estimate(self, x: Tensor) -> Tensor:
        return self.predictor(x)

    @override
    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.estimate(x)
        return logits, logits.detach()
