"""What an attacker sees: logits with gradients, of an estimator that need not be the deployed predictor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from robustdeq.models.modes import attacking
from robustdeq.models.straight import straight_through

Values = Literal["surrogate", "deployed"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Oracle(ABC):
    """A plain callable, pixels -> logits with autograd, so that any attack library runs on it unmodified.

    The gradient is always the surrogate's. The values are the surrogate's too, or those of the deployed predictor
    (`values="deployed"`, straight-through): an attack that steers by what it sees must see the deployed ones.
    """

    values: Values = "surrogate"

    def __post_init__(self) -> None:
        if self.values not in ("surrogate", "deployed"):
            raise ValueError(f"values must be 'surrogate' or 'deployed', got {self.values!r}")

    @property
    @abstractmethod
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor."""

    @abstractmethod
    def estimate(self, x: Tensor) -> Tensor:
        """The surrogate's logits, differentiable in x; called in eval mode, with parameters that need no gradients."""

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The surrogate's logits and the deployed ones; overridden where one solve serves both."""
        surrogate = self.estimate(x)
        with torch.no_grad():
            return surrogate, self.target(x.detach())

    def for_rows(self, places: Tensor) -> Oracle:
        """What is asked when only these images of a batch are shown; overridden where images have their own settings.

        Args:
            places: Where they stand in the batch.
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

    def prepared(self) -> AbstractContextManager[Any]:
        """Eval mode and no gradients for parameters, put back afterwards."""
        return attacking(self.target) if isinstance(self.target, nn.Module) else nullcontext()


@dataclass(frozen=True, eq=False)
class Direct(Oracle):
    """The deployed predictor's own autograd: for models without dynamics, and for a defence as it differentiates."""

    predictor: Callable[[Tensor], Tensor]

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor."""
        return self.predictor

    def estimate(self, x: Tensor) -> Tensor:
        """Its logits."""
        return self.predictor(x)

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same logits twice, from one pass."""
        logits = self.estimate(x)
        return logits, logits.detach()


@dataclass(frozen=True, eq=False)
class SurrogateAlone(Oracle):
    """Another oracle's surrogate, taken for the deployed predictor."""

    oracle: Oracle

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The surrogate."""
        return self.oracle.surrogate

    def estimate(self, x: Tensor) -> Tensor:
        """Its logits."""
        return self.oracle.surrogate(x)

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same logits twice, from one pass."""
        logits = self.estimate(x)
        return logits, logits.detach()

    def for_rows(self, places: Tensor) -> Oracle:
        """Of what the other one shows then."""
        return replace(self, oracle=self.oracle.for_rows(places))

    def prepared(self) -> AbstractContextManager[Any]:
        """As the other."""
        return self.oracle.prepared()
