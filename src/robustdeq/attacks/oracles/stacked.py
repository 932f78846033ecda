"""Several intermediate-state attacks in one batch, because small batches are dominated by overhead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.oracles.states import UnrolledState
from robustdeq.models import BoundDynamics
from robustdeq.solve import GradientPolicy, SolvedState
from robustdeq.solve.solver import Map


@dataclass(frozen=True, eq=False)
class UnrolledRows(GradientPolicy):
    """Damped applications of f, with the number and damping of each row's own; finished rows leave the batch."""

    steps: Tensor
    """Number of steps of each row, (B,), int64."""
    damping: Tensor
    """Weight of f of each row, (B,)."""
    undamped_first: bool = False
    """Whether to begin with y = f(z), as `Phantom` does."""

    @override
    def connect(self, f: Map, state: SolvedState) -> Tensor:
        assert isinstance(f, BoundDynamics)
        if len(state.z) != len(self.steps):
            raise ValueError(f"this oracle has settings for {len(self.steps)} images, got {len(state.z)}")
        y, u = state.z.detach(), f.u
        y = f(y) if self.undamped_first else y
        if not isinstance(u, Tensor):  # a user's own kind of injection, whose rows cannot be selected
            return self._without_leaving(f, y)
        order = self.steps.argsort(descending=True, stable=True)
        damping = self.damping.to(y)[order].reshape(-1, *[1] * (y.ndim - 1))
        y, u, done = y[order], u[order], []
        wanted = self.steps[order].tolist()
        for k in range(1, wanted[0] + 1):
            staying = sum(steps >= k for steps in wanted)
            if k == 1 or staying < len(y):
                done.append(y[staying:])
                y, f = y[:staying], f.rebind(u[:staying])
            y = torch.lerp(y, f(y), damping[:staying])
        return torch.cat([y, *reversed(done)])[order.argsort()]

    def _without_leaving(self, f: Map, y: Tensor) -> Tensor:
        column = (-1, *[1] * (y.ndim - 1))
        damping, wanted = self.damping.to(y).reshape(column), self.steps.reshape(column)
        for k in range(1, int(wanted.max()) + 1):
            y = torch.where(wanted >= k, torch.lerp(y, f(y), damping), y)
        return y


@dataclass(frozen=True, eq=False)
class StackedStates(UnrolledState):
    """`UnrolledState` with K_a and lambda of each image's own, (B,); everything else is common to all images."""

    steps: Tensor = field(kw_only=True)  # type: ignore[assignment]
    damping: Tensor = field(kw_only=True)  # type: ignore[assignment]

    @override
    def __post_init__(self) -> None:
        """The oracles that it is made of have been checked."""

    @classmethod
    def of(cls, oracles: Sequence[UnrolledState], which: Tensor) -> StackedStates:
        """Stack oracles that differ only in K_a and lambda.

        Args:
            oracles: Oracles with the same predictor, state, form, awareness and values.
            which: Number of each image's oracle in this sequence, (B,).
        """
        settings = [{f.name: getattr(o, f.name) for f in fields(o)} for o in oracles]
        steps = torch.tensor([s.pop("steps") for s in settings], device=which.device)
        damping = torch.tensor([s.pop("damping") for s in settings], dtype=torch.float64, device=which.device)
        if any(s != settings[0] for s in settings):
            raise ValueError("oracles in one batch may differ in steps and damping alone")
        return cls(**settings[0], steps=steps[which], damping=damping[which])

    @property
    @override
    def policy(self) -> GradientPolicy:
        return UnrolledRows(self.steps, self.damping, undamped_first=self.form == "released")

    @override
    def for_rows(self, places: Tensor) -> StackedStates:
        return replace(self, steps=self.steps[places], damping=self.damping[places])
