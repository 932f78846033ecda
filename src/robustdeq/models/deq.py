"""Deep equilibrium models made of any encoder, dynamics and head."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.checks import check_images
from robustdeq.models.dynamics import BoundDynamics, bind, initial_state
from robustdeq.models.predictor import DynamicPredictor, Pass
from robustdeq.models.pretrained import Pretrained
from robustdeq.solve import Broyden, GradientPolicy, Phantom, Solution, SolvedState, Solver, fixed_point

Readout = Literal["lowest", "last"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardPass:
    """The results of `DEQ.run`, for callers who need more than logits."""

    logits: Tensor
    y: Tensor
    """The differentiable state that the head read."""
    state: SolvedState
    """The solver's state that y was computed from."""
    f: BoundDynamics
    """f(.; u) of this pass."""


class DEQ(Pretrained, DynamicPredictor):
    """encoder + dynamics + head: u = encoder(x), z = f(z; u) solved from z^[0], logits = head(y).

    A forward pass has four steps: `begin` (encode the images), `solve`, `read` (choose a state of the solve), and the
    head at what the gradient policy makes of this state. `run` takes all of them, in the current mode and
    differentiable in the weights: for training. `walk` takes the first two and `read_out` the others: for predictors
    and attacks.

    Args:
        encoder: Pixels to the injection u.
        dynamics: A module f(z, u) that returns a tensor shaped like z. The state starts at zeros like u, unless the
            module has a method `initial(u)`. Subclass `SplitDynamics` to split f or to draw random numbers per pass.
        head: State to logits.
        solver: The solver of z = f(z; u).
        gradient: The gradient policy; it also decides what the head reads: Phantom unrolls the state.
        tol: Residual below which a sample counts as converged and freezes.
        readout: The iterate that is read: the one with the lowest residual, or the last.

    `solver`, `gradient`, `tol` and `readout` are attributes and may be replaced at any time.
    """

    def __init__(
        self,
        *,
        encoder: nn.Module,
        dynamics: nn.Module,
        head: nn.Module,
        solver: Solver | None = None,
        gradient: GradientPolicy | None = None,
        tol: float = 1e-3,
        readout: Readout = "lowest",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.dynamics = dynamics
        self.head = head
        self.solver: Solver = Broyden(max_steps=8) if solver is None else solver
        self.gradient: GradientPolicy = Phantom(steps=5, damping=0.5) if gradient is None else gradient
        self.tol = tol
        self.readout: Readout = readout
        self.metadata = {}
        self.check_settings(self.settings())

    @override
    def settings(self) -> dict[str, Any]:
        return {"solver": self.solver, "gradient": self.gradient, "tol": self.tol, "readout": self.readout}

    @override
    def check_settings(self, settings: dict[str, Any]) -> None:
        kinds: dict[str, Any] = {"solver": Solver, "gradient": GradientPolicy, "tol": (int, float), "readout": str}
        for name, value in settings.items():
            if name not in kinds:
                raise ValueError(f"unknown setting {name!r}; known are {', '.join(kinds)}")
            if not isinstance(value, kinds[name]):
                raise TypeError(f"{name} cannot be {value!r}")
        if settings.get("readout", "last") not in ("lowest", "last"):
            raise ValueError(f"readout must be 'lowest' or 'last', got {settings['readout']!r}")
        if "tol" in settings and not settings["tol"] >= 0:
            raise ValueError(f"tol must be >= 0, got {settings['tol']}")

    @override
    def forward(self, x: Tensor) -> Tensor:
        """The deployed logits (B, C), in the current mode and differentiable in x and in the weights."""
        return self.run(x).logits

    def run(
        self,
        x: Tensor,
        *,
        max_steps: int | None = None,
        readout: Readout | None = None,
        gradient: GradientPolicy | None = None,
        generator: torch.Generator | None = None,
        record: bool = False,
    ) -> ForwardPass:
        """A forward pass, optionally with other settings than the model's own.

        Args:
            x: Pixels.
            max_steps: Number of solver steps; training with random intermediate states draws it.
            readout: The iterate that is read.
            gradient: The gradient policy.
            generator: Source of the random draws of a pass (dropout masks); PyTorch's default generator if not given.
            record: Keep the trajectory of the solve.
        """
        gradient = self.gradient if gradient is None else gradient
        f, z0 = self.begin(x, generator=generator)
        with nullcontext() if gradient.differentiates_solver else torch.no_grad():
            # the last iterate is read whatever its residual is: no need to evaluate f there
            judge_last = (readout or self.readout) != "last" or record or gradient.needs_inverse
            solution = self.solve(f, z0, max_steps=max_steps, record=record, judge_last=judge_last)
        state = self.read(solution, readout)
        y = gradient.connect(f, state)
        return ForwardPass(logits=self.head(f.unpack(y)), y=y, state=state, f=f)

    def begin(self, x: Tensor, *, generator: torch.Generator | None = None) -> tuple[BoundDynamics, Tensor]:
        """f(.; u(x)) for one pass, and z^[0]."""
        check_images(self, x)
        u = self.encoder(x)
        z0 = initial_state(self.dynamics, u)
        if torch.is_autocast_enabled(z0.device.type):  # f may compute in half precision, the state stays in float32
            z0 = z0.float()
        return bind(self.dynamics, u, generator=generator), z0

    def solve(
        self,
        f: BoundDynamics,
        z0: Tensor,
        *,
        max_steps: int | None = None,
        record: bool = True,
        judge_last: bool = True,
    ) -> Solution:
        """The model's solver on f from z0; `record` and `judge_last` as for `robustdeq.fixed_point`."""
        solver = self.solver if max_steps is None else replace(self.solver, max_steps=max_steps)
        return fixed_point(f, z0, solver, tol=self.tol, record=record, judge_last=judge_last)

    def read(self, solution: Solution, readout: Readout | None = None, *, state: int | None = None) -> SolvedState:
        """The state of a recorded solution with this number, or else the one that the readout chooses."""
        readout = readout or self.readout
        self.check_settings({"readout": readout})
        if state is not None:
            assert solution.trajectory is not None
            z, step = solution.trajectory[state - 1], solution.steps.clamp_max(state)
        elif readout == "lowest":
            z, step = solution.value, solution.lowest_step
        else:
            z, step = solution.last, solution.steps
        return SolvedState(z=z, step=step, solution=solution, batch_coupled=self.solver.batch_coupled)

    def truncated(self, x: Tensor, *, layers: int = 8, generator: torch.Generator | None = None) -> Tensor:
        """Logits of the weight-tied network of `layers` plain applications of f from z^[0]: for pretraining."""
        f, z = self.begin(x, generator=generator)
        for _ in range(layers):
            z = f(z)
        logits: Tensor = self.head(f.unpack(z))
        return logits

    @property
    @override
    def base(self) -> DEQ:
        return self

    @property
    @override
    def reads_residuals(self) -> bool:
        return self.readout == "lowest" or self.gradient.needs_inverse

    @override
    def walk(
        self,
        x: Tensor,
        *,
        steps: int | None = None,
        judge_last: bool = True,
        measure: bool = False,
        exact: bool = False,
        smoothing: float | None = None,
    ) -> Pass:
        with torch.enable_grad() if exact else nullcontext():
            f, z0 = self.begin(x)
            return Pass(x=x, x_read=x, f=f, solution=self.solve(f, z0, max_steps=steps, judge_last=judge_last))

    @override
    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        f, state = walked.f, self.read(walked.solution)
        y = self.gradient.advance(f, state.z) if exact else self.gradient.connect(f, state)
        logits: Tensor = self.head(f.unpack(y))
        return logits

    def inference_parts(self) -> tuple[nn.Module, nn.Module]:
        """Encoder and head for passes in eval mode with constant weights; subclasses may return faster copies."""
        return self.encoder, self.head

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile encoder, dynamics and head in place with `torch.compile`; the solver's loop stays as it is."""
        for part in (self.encoder, self.dynamics, self.head):
            part.compile(*args, **kwargs)
