"""Predictors of unknown kind: without a usable gradient, beside another predictor that has one, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from robustdeq.attacks import Direct, Oracle

PASSES = 8
"""Number of passes that a random predictor's logits are averaged over."""


@dataclass(frozen=True, eq=False)
class Opaque(Direct):
    """The predictor's own gradient, and zero where it has none: rounding in numpy, argmax, a pass without autograd.

    Attacks then end where they start, and the audit says so by its flag vanishing-gradients.
    """

    @override
    def estimate(self, x: Tensor) -> Tensor:
        try:
            logits = self.predictor(x)
        except RuntimeError as error:  # such as "Can't call numpy() on Tensor that requires grad"
            if not x.requires_grad or "requires grad" not in str(error):
                raise
            logits = self.predictor(x.detach())
        # a graph from x to the logits, whatever the predictor did: it adds nothing to the values or to the gradient
        return logits + 0 * x.flatten(1).sum(1, keepdim=True).to(logits.dtype) if x.requires_grad else logits


@dataclass(frozen=True, eq=False)
class Beside(Oracle):
    """The values of a predictor with the gradient of another one, such as its static base (BPDA with the identity)."""

    predictor: Callable[[Tensor], Tensor]
    other: Oracle
    _: KW_ONLY

    @property
    @override
    def target(self) -> Callable[[Tensor], Tensor]:
        return self.predictor

    @override
    def estimate(self, x: Tensor) -> Tensor:
        return self.other.surrogate(x)


class Averaged(nn.Module):
    """The mean logits of several passes of a random predictor, so that it is attacked and judged in expectation."""

    def __init__(self, predictor: Callable[[Tensor], Tensor], passes: int = PASSES) -> None:
        super().__init__()
        self.predictor, self.passes = predictor, passes
        self.metadata: Any = getattr(predictor, "metadata", None)
        self.of = getattr(predictor, "__qualname__", type(predictor).__qualname__)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits = self.predictor(x)
        for _ in range(self.passes - 1):
            logits = logits + self.predictor(x)
        return logits / self.passes
