"""The oracle that carries state and adjoint from step to step of an attack (docs/method.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.oracles.states import StateOracle, View
from robustdeq.solve import GradientPolicy, SolvedState
from robustdeq.solve.gradients import with_adjoint
from robustdeq.solve.solver import Map


@dataclass(frozen=True, eq=False)
class Starts:
    """Where the iterations of some images start."""

    known: Tensor
    """Which images go on from a tensor of their own."""
    values: Tensor | None

    def filled(self, otherwise: Tensor) -> Tensor:
        """The tensors of the images, and for those without one `otherwise`."""
        if self.values is None:
            return otherwise
        return torch.where(_column(self.known, otherwise), self.values, otherwise)


class Kept:
    """One tensor for each image of an attack's batch; an image without one starts cold."""

    def __init__(self, count: int) -> None:
        self.known = torch.zeros(count, dtype=torch.bool)
        self.values: Tensor | None = None

    def at(self, places: Tensor) -> Starts:
        """The tensors of the images at these places, as they are now."""
        known = self.known[places.cpu()].to(places.device)
        return Starts(known, None if self.values is None else self.values[places])

    def keep(self, places: Tensor, values: Tensor) -> None:
        """Replace the tensors at these places; an image whose tensor is not finite has none from then on."""
        if self.values is None:
            self.values = values.new_zeros(len(self.known), *values.shape[1:])
        self.values[places] = values
        self.known[places.cpu()] = values.isfinite().flatten(1).all(1).cpu()

    def forget(self, places: Tensor) -> None:
        """Let these images start cold again."""
        self.known[places.cpu()] = False


class Memory:
    """What one attack on one batch carries: states z, and adjoints a as a - dL/dy."""

    def __init__(self, count: int) -> None:
        self.states, self.rests = Kept(count), Kept(count)


@dataclass(frozen=True, eq=False)
class CarriedAdjoint(GradientPolicy):
    """y = f(z); the adjoint a <- (1 - d) a + d (dL/dy + J^T a) goes on where the image's last pass left it."""

    iterations: int
    damping: float
    extra: int
    rests: Kept
    """a - dL/dy of the image's last pass: a change of dL/dy then enters a at once."""
    places: Tensor

    @override
    def connect(self, f: Map, state: SolvedState) -> Tensor:
        return self.attach(f, state.z)

    def attach(self, f: Map, z: Tensor) -> Tensor:
        """f(z) with the adjoint's iterations attached to its backward pass."""
        starts = self.rests.at(self.places)  # not in the backward pass, of which there may be several

        def adjoint(g: Tensor, vjp: Map) -> Tensor:
            a, known = g + starts.filled(torch.zeros_like(g)), starts.known
            for _ in range(self.iterations):
                a = torch.lerp(a, g + vjp(a), self.damping)
            if not known.all():  # an image's iterations do not depend on its batch-mates
                for _ in range(self.extra):
                    a = torch.where(_column(known, a), a, torch.lerp(a, g + vjp(a), self.damping))
            self.rests.keep(self.places, a - g)
            return a

        return with_adjoint(f, z, adjoint)


@dataclass(frozen=True, eq=False)
class CarriedEstimate(StateOracle):
    """Implicit gradients whose state and adjoint are carried from step to step of one attack, image by image.

    A pass with a gradient makes `iterations` iterations of z and a, by the formulas of `robustdeq.Carried`, with two
    differences: an oracle learns dL/dy only when the attack differentiates its logits, so a is iterated then, with f
    differentiated at the pass's last z. It starts from dL/dy plus the rest of the last pass's a, so that it follows at
    once where dL/dy jumps (another class comes closest). Where z and a have converged, this is the implicit gradient.

    - Where the pass also computes the deployed logits, it solves from z^[0]. Its deployed state is then the z at which
      f is differentiated, and a alone is carried: deployed values never come from a carried state. The same holds for
      the views "aware" and "bpda", whose defended pass is run anew each time.
    - What is carried belongs to one image in one run of one attack. Attacks of this package say which images a pass
      shows, and when a run (a restart, a target) begins. An image's first pass starts cold: z from `first` solver
      steps, a from dL/dy with `extra` more iterations. Passes without gradients change nothing.
    - If the attack moves an image far, as APGD does when it returns to its best point, z and a are only worse starts:
      they never enter deployed values, and the next iterations correct them.
    - Called directly (attack libraries, FAB-T), the oracle does not know which images it sees: every pass starts cold.

    Args:
        predictor: A DEQ, or a defence around one.
        first: Solver steps where a state starts cold.
        iterations: Iterations of z and a per pass.
        damping: The weight d of f, in (0, 1].
        extra: Additional iterations of a where it starts cold.
        view: "oblivious", "aware" or "bpda", see `View`.
        values: "surrogate" or "deployed", see `Oracle`.
    """

    first: int = 4
    iterations: int = 1
    damping: float = 0.5
    extra: int = 2
    view: View = "oblivious"
    memory: Memory | None = field(default=None, repr=False)
    """What the present attack carries; None outside of an attack."""
    places: Tensor | None = field(default=None, repr=False)
    """Positions, in the attack's batch, of the images that a pass shows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in (("first", 1), ("iterations", 1), ("extra", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if not 0 < self.damping <= 1:
            raise ValueError(f"damping is the weight of f and must lie in (0, 1], got {self.damping}")

    @property
    @override
    def state(self) -> int | None:
        return self.predictor.early_state

    @property
    @override
    def policy(self) -> CarriedAdjoint:
        assert self.memory is not None
        assert self.places is not None
        return CarriedAdjoint(self.iterations, self.damping, self.extra, self.memory.rests, self.places)

    @override
    def for_attack(self, count: int) -> CarriedEstimate:
        return replace(self, memory=Memory(count), places=None)

    @override
    def for_rows(self, places: Tensor) -> CarriedEstimate:
        return replace(self, places=places)

    @override
    def forget(self, places: Tensor) -> None:
        if self.memory is not None:
            self.memory.states.forget(places)
            self.memory.rests.forget(places)

    def _here(self, x: Tensor) -> CarriedEstimate:
        """This oracle with a memory for exactly these images: a new one if it does not know which images they are."""
        if self.memory is None or self.places is None:
            return replace(self, memory=Memory(len(x)), places=torch.arange(len(x), device=x.device))
        if len(self.places) != len(x):
            raise ValueError(f"this oracle was told of {len(self.places)} images, and shown {len(x)}")
        return self

    @override
    def estimate(self, x: Tensor) -> Tensor:
        here = self._here(x)
        return here._carried(x) if self.view == "oblivious" else super(CarriedEstimate, here).estimate(x)

    @override
    def estimate_and_deploy(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super(CarriedEstimate, self._here(x)).estimate_and_deploy(x)

    def _carried(self, x: Tensor) -> Tensor:
        """Logits at y = f(z; x) of the carried z, which moves on by `iterations` iterations."""
        assert self.memory is not None
        assert self.places is not None
        model = self.predictor.base
        f, z0 = model.begin(x)
        with torch.no_grad():
            starts = self.memory.states.at(self.places)
            z = starts.filled(z0)
            if not starts.known.all():
                solved = model.read(model.solve(f, z0, max_steps=self.first, record=False), "lowest").z
                z = torch.where(_column(starts.known, z), z, solved)
            for _ in range(self.iterations - 1):
                z = torch.lerp(z, f(z).to(z.dtype), self.damping)
        y = self.policy.attach(f, z)
        if x.requires_grad and torch.is_grad_enabled():
            self.memory.states.keep(self.places, torch.lerp(z, y.detach().to(z.dtype), self.damping))
        logits: Tensor = model.head(f.unpack(y))
        return logits


def _column(rows: Tensor, like: Tensor) -> Tensor:
    """A value per row, shaped to broadcast over `like`."""
    return rows.view(-1, *[1] * (like.ndim - 1))
