"""The forward passes of training: one pass by name, at the state that the state policy chooses."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robustdeq.models import DEQ
from robustdeq.models.deq import ForwardPass
from robustdeq.solve import GradientPolicy
from robustdeq.training.draws import Draws
from robustdeq.training.states import StatePolicy


@dataclass(frozen=True, eq=False)
class CarriedState:
    """The state at which an inner attack ended, for the loss's own pass to start from."""

    z: Tensor
    """One state per image."""
    steps: int
    """Solver steps that the pass takes from here."""


def solved_pass(
    model: DEQ, x: Tensor, states: StatePolicy, draws: Draws, name: str, *, steps: int | None = None, **options: Any
) -> ForwardPass:
    """The pass of this name, solved from z^[0]; at most `steps` solver steps, the model's own number if not given."""
    depth = states.depth(model.solver.max_steps if steps is None else steps, draws, name)
    generator = draws.own_generator(f"dropout.{name}")
    return model.run(x, max_steps=depth.max_steps, readout=depth.readout, generator=generator, **options)


def logits_of(model: nn.Module, x: Tensor, states: StatePolicy, draws: Draws, name: str) -> Tensor:
    """Logits of the pass of this name; a model that is no DEQ has no states to choose from."""
    logits: Tensor
    if isinstance(model, DEQ):
        logits = solved_pass(model, x, states, draws, name).logits
    else:
        logits = model(x)
    return logits


def continued_pass(
    model: DEQ, x: Tensor, start: CarriedState, draws: Draws, name: str, gradient: GradientPolicy
) -> Tensor:
    """Logits of the pass of this name, whose solve starts at a carried state; the lowest-residual iterate is read.

    A carried state that is not finite is replaced by z^[0].
    """
    f, z0 = model.begin(x, generator=draws.own_generator(f"dropout.{name}"))
    finite = start.z.isfinite().flatten(1).all(1).view(-1, *[1] * (z0.ndim - 1))
    with nullcontext() if gradient.differentiates_solver else torch.no_grad():
        solution = model.solve(f, torch.where(finite, start.z, z0), max_steps=start.steps, record=False)
    logits: Tensor = model.head(f.unpack(gradient.connect(f, model.read(solution, "lowest"))))
    return logits
