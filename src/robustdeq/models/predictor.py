"""What attacks, defences and evaluation see of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """A pass along the dynamics, state by state; row t - 1 belongs to z^[t], and there are always N rows."""

    states: Float[Tensor, "N B *latent"]
    logits: Float[Tensor, "N B C"]
    """head(z^[t]), no unrolling."""
    entropy: Float[Tensor, "N B"]
    """Of softmax(logits), in nats."""
    residual: Float[Tensor, "N B"]
    """The residual that the solver judges by."""
    status: Int[Tensor, " B"]
    """A `robustdeq.Status` for each sample."""
    steps: Int[Tensor, " B"]
    """Solver steps before the sample froze."""
    lowest_step: Int[Tensor, " B"]
    """The step whose residual is lowest: with the default readout, the state that `model(x)` starts from."""


@runtime_checkable
class Predictor(Protocol):
    """Pixels in [0, 1] to the deployed logits."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (B, C), differentiable in x."""
        ...

    def trajectory(self, x: Tensor) -> Trajectory:
        """The pass along the dynamics."""
        ...
