"""A deep equilibrium model from any encoder, dynamics and head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from robustdeq.models.checks import check_images
from robustdeq.models.dynamics import BoundDynamics, bind, initial_state
from robustdeq.models.predictor import DynamicPredictor, Pass
from robustdeq.models.pretrained import Pretrained
from robustdeq.solve import Broyden, GradientPolicy, Phantom, Solution, SolvedState, Solver, fixed_point

Readout = Literal["lowest", "last"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardPass:
    """A forward pass with everything it went through, for objectives and oracles that need more than logits."""

    logits: Tensor
    y: Tensor
    """The differentiable state that the head read."""
    state: SolvedState
    """The solver's state it came from."""
    f: BoundDynamics
    """f(.; u) of this pass, over states in its order (see `run`)."""


class DEQ(Pretrained, DynamicPredictor):
    """encoder + dynamics + head: u = encoder(x), z = f(z; u) solved from z^[0], logits = head(y).

    Args:
        encoder: Pixels to the injection u.
        dynamics: A module f(z, u) that returns a tensor shaped like z. The state starts at zeros like u, unless the
            module has a method `initial(u)`. Subclass `SplitDynamics` for dynamics that split f or draw per pass.
        head: State to logits.
        solver: How z = f(z; u) is solved.
        gradient: How the result is differentiated, and with it what the head reads: Phantom unrolls the state.
        tol: Residual below which a sample is converged and freezes.
        readout: Which iterate is read: the lowest-residual one or the last.

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
        self.check_settings(self.settings())

    def settings(self) -> dict[str, Any]:
        """What a checkpoint keeps besides sizes and weights."""
        return {"solver": self.solver, "gradient": self.gradient, "tol": self.tol, "readout": self.readout}

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Refuse settings that would only fail in a forward pass."""
        kinds: dict[str, Any] = {"solver": Solver, "gradient": GradientPolicy, "tol": (int, float), "readout": str}
        for name, value in settings.items():
            if name not in kinds:
                raise ValueError(f"unknown setting {name!r}; known are {', '.join(kinds)}")
            if not isinstance(value, kinds[name]):
                raise TypeError(f"{name} cannot be {value!r}")
        if "readout" in settings:
            _check_readout(settings["readout"])
        if "tol" in settings and not settings["tol"] >= 0:
            raise ValueError(f"tol must be >= 0, got {settings['tol']}")

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        """The deployed logits; options as of `run`."""
        return self.run(x, **options).logits

    def run(
        self,
        x: Tensor,
        *,
        max_steps: int | None = None,
        readout: Readout | None = None,
        gradient: GradientPolicy | None = None,
        generator: torch.Generator | None = None,
        record: bool = False,
        ordered: bool = True,
    ) -> ForwardPass:
        """A forward pass with its solver state, under other settings than the model's own where given.

        Args:
            x: Pixels.
            max_steps: Solver steps; training with random intermediate states draws this.
            readout: Which iterate is read.
            gradient: How it is differentiated.
            generator: Source of what is drawn once per pass (dropout masks); PyTorch's default one if not given.
            record: Keep the trajectory.
            ordered: The entries of states lie as the dynamics say; if not, in whatever order is fastest, for callers
                who read logits alone.
        """
        gradient = self.gradient if gradient is None else gradient
        f, z0 = self.begin(x, generator=generator)
        f = f if ordered else f.reordered()
        with nullcontext() if gradient.differentiates_solver else torch.no_grad():
            # the last iterate is read as it is, whatever its residual: evaluating f there would be for nothing
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
        if torch.is_autocast_enabled(z0.device.type):  # f may compute in half precision, the state does not
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
        """Run the model's solver."""
        solver = self.solver if max_steps is None else replace(self.solver, max_steps=max_steps)
        return fixed_point(f, z0, solver, tol=self.tol, record=record, judge_last=judge_last)

    def read(self, solution: Solution, readout: Readout | None = None) -> SolvedState:
        """The state of a solution that the readout chooses."""
        readout = self.readout if readout is None else readout
        _check_readout(readout)
        lowest = readout == "lowest"
        return SolvedState(
            z=solution.value if lowest else solution.last,
            step=solution.lowest_step if lowest else solution.steps,
            solution=solution,
            batch_coupled=self.solver.batch_coupled,
        )

    def truncated(self, x: Tensor, *, layers: int = 8, generator: torch.Generator | None = None) -> Tensor:
        """Logits of the weight-tied network of `layers` plain applications of f from z^[0], by ordinary backprop."""
        f, z = self.begin(x, generator=generator)
        f = f.reordered()
        for _ in range(layers):
            z = f(z)
        logits: Tensor = self.head(f.unpack(z))
        return logits

    @property
    def base(self) -> DEQ:
        """Itself."""
        return self

    @property
    def defended(self) -> bool:
        """It is not."""
        return False

    @property
    def steps_read(self) -> None:
        """All."""
        return None

    @property
    def reads_residuals(self) -> bool:
        """To choose the lowest."""
        return self.readout == "lowest" or self.gradient.needs_inverse

    def walk(self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, measure: bool = False) -> Pass:
        """The solve on x, recorded."""
        f, z0 = self.begin(x)
        solution = self.solve(f, z0, max_steps=steps, judge_last=judge_last)
        return Pass(x=x, x_read=x, f=f, solution=solution)

    def walk_differentiably(
        self, x: Tensor, *, steps: int | None = None, judge_last: bool = True, smoothing: float | None = None
    ) -> Pass:
        """The solve on x; nothing in it stops gradients."""
        with torch.enable_grad():
            return self.walk(x, steps=steps, judge_last=judge_last)

    def undefended(self) -> DEQ:
        """Itself."""
        return self

    @property
    def watched(self) -> list[int]:
        """All."""
        return list(range(1, self.solver.max_steps + 1))

    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        """The head at what the gradient policy makes of the state that the readout chooses."""
        f, state = walked.f, self.read(walked.solution)
        y = self.gradient.advance(f, state.z) if exact else self.gradient.connect(f, state)
        logits: Tensor = self.head(f.unpack(y))
        return logits

    def input_parts(self) -> tuple[nn.Module, nn.Module]:
        """Encoder and head for many passes with constant weights, in eval mode; subclasses may return faster copies."""
        return self.encoder, self.head

    @contextmanager
    def constant_parts(self) -> Iterator[None]:
        """Inside, passes go through the copies of `input_parts`: for many passes in eval mode with constant weights.

        They stand in the place of encoder and head, so `state_dict()` is not the model's own there.
        """
        own = self.encoder, self.head
        self.encoder, self.head = self.input_parts()
        try:
            yield
        finally:
            self.encoder, self.head = own

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile encoder, dynamics and head in place with `torch.compile`; the solver's loop stays as it is."""
        for part in (self.encoder, self.dynamics, self.head):
            part.compile(*args, **kwargs)


def _check_readout(readout: str) -> None:
    if readout not in ("lowest", "last"):
        raise ValueError(f"readout must be 'lowest' or 'last', got {readout!r}")
