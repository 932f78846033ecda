"""The result of a solve: values, and the outcome of every sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from robustdeq.solve.lowrank import LowRankInverse


class Status(IntEnum):
    """Why a sample's iteration ended; `Solution.status` holds one per sample."""

    STEP_LIMIT = 0
    """All `max_steps` steps were taken and the residual is still above the tolerance."""
    CONVERGED = 1
    """The residual fell below the tolerance; the sample froze there."""
    DIVERGED = 2
    """The residual rose above `divergence` times its first value; the sample froze there."""
    NON_FINITE = 3
    """The iterate or f of it is NaN, infinite, or overflows in norm; the sample froze there, the others went on."""


class NotConvergedError(RuntimeError):
    """Raised by `Solution.require_converged`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The outcome of a fixed-point iteration; every field with a batch axis is per sample.

    Steps count from 1: `trajectory[t - 1]` is z^[t], the iterate after step t.
    """

    value: Float[Tensor, " B *latent"]
    """The lowest-residual iterate (the first one, if tied)."""
    last: Float[Tensor, " B *latent"]
    """The iterate after the last step taken."""
    lowest_step: Int[Tensor, " B"]
    """The step that produced `value`."""
    steps: Int[Tensor, " B"]
    """Steps taken before the sample froze."""
    status: Int[Tensor, " B"]
    """A `Status` for each sample."""
    residual: Float[Tensor, " B"]
    """The residual of `value` by the solver's criterion (relative by default)."""
    residuals: Float[Tensor, "N B"]
    """The residual after each step."""
    residual_norms: Float[Tensor, "N B"]
    """||f(z) - z|| after each step."""
    evaluations: int
    """Number of evaluations of f."""
    trajectory: Float[Tensor, "N B *latent"] | None = None
    """Every iterate z^[1..N], if it was recorded; a frozen sample's last iterate repeats."""
    inverse_from: int = 0
    """The step after which the inverse estimate starts: each later step has one factor."""
    compute_inverse: Callable[[], LowRankInverse | None] = field(default=lambda: None, repr=False)
    """Computes `inverse` at its first use."""

    @cached_property
    def inverse(self) -> LowRankInverse | None:
        """The solver's estimate of the inverse Jacobian after its last step; None if the solver keeps none."""
        return self.compute_inverse()

    @property
    def converged(self) -> Tensor:
        """Which samples converged, (B,) of bool."""
        return self.status == Status.CONVERGED

    def summary(self) -> str:
        """One line with the number of samples per status and the worst residual."""
        counts = Counter(Status(s).name.lower().replace("_", " ") for s in self.status.tolist())
        parts = ", ".join(f"{n} {name}" for name, n in counts.most_common())
        return f"{parts}; worst residual {self.residual.max().item():.3g}"

    def require_converged(self) -> Solution:
        """Return self, or raise `NotConvergedError` naming the samples that did not converge."""
        if not bool(self.converged.all()):
            bad = (~self.converged).nonzero().flatten().tolist()
            shown = ", ".join(map(str, bad[:10])) + (", ..." if len(bad) > 10 else "")
            raise NotConvergedError(
                f"{len(bad)} of {len(self.status)} samples did not converge (indices {shown}): {self.summary()}. "
                "Raise max_steps, loosen tol, or damp the iteration."
            )
        return self
