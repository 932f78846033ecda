"""Several intermediate-state attacks in one batch: small batches cost their overhead, not their arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from robustdeq.attacks.oracles.states import OneState, StateOracle, UnrolledState
from robustdeq.models import BoundDynamics
from robustdeq.solve import GradientPolicy, SolvedState
from robustdeq.solve.solver import Map


@dataclass(frozen=True, eq=False)
class UnrolledRows(GradientPolicy):
    """Damped applications of f, as many and as damped as each row wants; rows that have theirs leave."""

    steps: Tensor
    """(B,), int64."""
    damping: Tensor
    """(B,)."""
    undamped_first: bool = False
    """Begin with y = f(z), as `Phantom` does."""

    def connect(self, f: Map, state: SolvedState) -> Tensor:
        """The unrolled states, each row's own."""
        assert isinstance(f, BoundDynamics)
        y, u = state.z.detach(), f.u
        y = f(y) if self.undamped_first else y
        if not isinstance(u, Tensor):  # an injection of the user's own: nobody knows what its rows are
            return self._staying(f, y)
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

    def _staying(self, f: Map, y: Tensor) -> Tensor:
        column = (-1, *[1] * (y.ndim - 1))
        damping, wanted = self.damping.to(y).reshape(column), self.steps.reshape(column)
        for k in range(1, int(wanted.max()) + 1):
            y = torch.where(wanted >= k, torch.lerp(y, f(y), damping), y)
        return y


@dataclass(frozen=True, eq=False)
class StackedStates(OneState, StateOracle):
    """`UnrolledState` with K_a and lambda of each image's own; the state i is everybody's.

    Args:
        predictor: A DEQ, or a defence around one.
        state: i.
        steps: K_a of each image of the batch, (B,).
        damping: lambda of each, (B,).
        form: As of `UnrolledState`.
        aware: As of `UnrolledState`.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    state: int
    steps: Tensor
    damping: Tensor
    form: Literal["paper", "released"] = "paper"
    aware: bool = False

    @classmethod
    def of(cls, oracles: Sequence[UnrolledState], which: Tensor) -> StackedStates:
        """Oracles that differ in K_a and lambda alone, each image looked at by that of its own number.

        Args:
            oracles: Of one predictor, state, form, awareness and values.
            which: The number of each image's oracle, (B,).
        """
        first = oracles[0]
        common = [(o.state, o.form, o.aware, o.values) for o in oracles]
        if any(settings != common[0] for settings in common):
            raise ValueError("oracles in one batch may differ in steps and damping alone")
        return cls(
            first.predictor,
            state=first.state,
            steps=torch.tensor([o.steps for o in oracles], device=which.device)[which],
            damping=torch.tensor([o.damping for o in oracles], dtype=torch.float64, device=which.device)[which],
            form=first.form,
            aware=first.aware,
            values=first.values,
        )

    @property
    def policy(self) -> GradientPolicy:
        """The unrolling of each row."""
        return UnrolledRows(self.steps, self.damping, undamped_first=self.form == "released")

    def for_rows(self, places: Tensor) -> StackedStates:
        """With the settings of those images."""
        return replace(self, steps=self.steps[places], damping=self.damping[places])

    def estimate(self, x: Tensor) -> Tensor:
        """Each image by its own settings."""
        self._check_rows(x)
        return super().estimate(x)

    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Each image by its own settings, and the deployed logits."""
        self._check_rows(x)
        return super().estimate_and_deploy(x)

    def _check_rows(self, x: Tensor) -> None:
        if len(x) != len(self.steps):
            raise ValueError(f"this oracle has settings for {len(self.steps)} images, got {len(x)}")
