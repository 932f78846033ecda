"""Several intermediate-state attacks in one batch, because small batches are dominated by overhead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.oracles.states import StateOracle, UnrolledState, View
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


@dataclass(frozen=True, kw_only=True, eq=False)
class StackedStates(StateOracle):
    """`UnrolledState` with K_a and lambda of each image's own; the state i is common to all images.

    Args:
        predictor: A DEQ, or a defence around one.
        state: Number i of the intermediate state, from 1.
        steps: Number K_a of unrolled steps of each image, (B,).
        damping: Weight lambda of f of each image, (B,).
        form: "paper" or "released", see `UnrolledState`.
        aware: Whether the state is taken from the defended pass, see `UnrolledState`.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    state: int = 3
    steps: Tensor
    damping: Tensor
    form: Literal["paper", "released"] = "paper"
    aware: bool = False

    @classmethod
    def of(cls, oracles: Sequence[UnrolledState], which: Tensor) -> StackedStates:
        """Stack oracles that differ only in K_a and lambda.

        Args:
            oracles: Oracles with the same predictor, state, form, awareness and values.
            which: Number of each image's oracle in this sequence, (B,).
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
    @override
    def view(self) -> View:
        return "aware" if self.aware else "oblivious"

    @property
    @override
    def policy(self) -> GradientPolicy:
        return UnrolledRows(self.steps, self.damping, undamped_first=self.form == "released")

    @override
    def for_rows(self, places: Tensor) -> StackedStates:
        return replace(self, steps=self.steps[places], damping=self.damping[places])

    @override
    def estimate(self, x: Tensor) -> Tensor:
        self._check_rows(x)
        return super().estimate(x)

    @override
    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self._check_rows(x)
        return super().estimate_and_deploy(x)

    def _check_rows(self, x: Tensor) -> None:
        if len(x) != len(self.steps):
            raise ValueError(f"this oracle has settings for {len(self.steps)} images, got {len(x)}")
