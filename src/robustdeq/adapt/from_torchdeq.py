"""A torchdeq model as a DEQ: its encoder, f and head are used as they are, its solver is replaced by ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.adapt.parts import AdaptError, part
from robustdeq.models import DEQ, BoundDynamics, SplitDynamics
from robustdeq.models.dynamics import bind, initial_state
from robustdeq.models.modes import evaluating
from robustdeq.solve import Anderson, Broyden, GradientPolicy, Implicit, OneStep, Picard, Solver, Unrolled

SOLVERS: dict[str, type[Solver]] = {
    "broyden_solver": Broyden,
    "anderson_solver": Anderson,
    "fixed_point_iter": Picard,
    "simple_fixed_point_iter": Picard,
}
"""Our solver for each of torchdeq's, by the name of its function."""
Given = nn.Module | Callable[..., Any] | str | None


def torchdeq(
    module: nn.Module,
    x: Tensor | None = None,
    *,
    encoder: Given = None,
    f: Given = None,
    head: Given = None,
    initial: Callable[[Any], Tensor] | None = None,
    deq: nn.Module | None = None,
) -> DEQ:
    """A torchdeq model as a `robustdeq.DEQ`, which has gradients in eval mode, a trajectory, defences and oracles.

    The parts are shared with the given module, not copied. Solver, tolerance and gradient policy follow torchdeq's
    configuration and may be replaced afterwards. With example images, every part is compared with what the module
    computes, and an error says which differs.

    Args:
        module: A module whose forward is `head(deq(lambda z: f(z, encoder(x)), z0)[0][-1])` or does the same in other
            words.
        x: Example images, on which the parts are compared with the module. Recommended.
        encoder: x -> u. A module, a function, or the name of an attribute; by default found by its usual names.
        f: (z, u) -> z, in the same ways.
        head: z -> logits, in the same ways.
        initial: u -> the initial state, if that is not zeros like u.
        deq: The module that `torchdeq.get_deq` returned; by default the only one inside.
    """
    core = _core(module) if deq is None else deq
    solver, tol = _solver(core)
    model = DEQ(
        encoder=part(module, encoder, "encoder"),
        dynamics=_Dynamics(part(module, f, "f"), initial),
        head=part(module, head, "head"),
        solver=solver,
        gradient=_gradient(core),
        tol=tol,
    )
    model.train(module.training)
    if x is not None:
        _compare(module, core, model, x)
    return model


class _Dynamics(SplitDynamics):
    """f(z, u); torchdeq's normalisations and dropout masks are renewed once per pass, as its users do themselves."""

    def __init__(self, f: nn.Module, initial: Callable[[Any], Tensor] | None) -> None:
        super().__init__()
        self.f = f
        self.start = initial

    @override
    def bind(self, u: Any, *, generator: torch.Generator | None = None) -> BoundDynamics:
        from torchdeq import reset_deq

        reset_deq(self.f)
        return bind(self.f, u, generator=generator)

    @override
    def initial(self, u: Any) -> Tensor:
        return initial_state(self.f, u) if self.start is None else self.start(u)


def _core(module: nn.Module) -> nn.Module:
    from torchdeq.core import DEQBase

    found = [m for m in module.modules() if isinstance(m, DEQBase)]
    if len(found) != 1:
        raise AdaptError(
            f"{type(module).__name__} contains {len(found)} modules made by torchdeq.get_deq; a DEQ has one "
            "equilibrium: give the one to take over as deq="
        )
    return found[0]


def _solver(core: Any) -> tuple[Solver, float]:
    """Our solver with the numbers that torchdeq uses in eval mode, and its tolerance."""
    kind = SOLVERS.get(core.f_solver.__name__)
    if kind is None:
        raise AdaptError(
            f"torchdeq's solver {core.f_solver.__name__} is not one of {', '.join(SOLVERS)}: set f_solver to one of "
            "them before, and replace model.solver by a solver of your own afterwards"
        )
    if core.f_stop_mode not in ("abs", "rel"):
        raise AdaptError(f"torchdeq's f_stop_mode is abs or rel, got {core.f_stop_mode!r}")
    criterion: Any = {"abs": "absolute", "rel": "relative"}[core.f_stop_mode]
    return kind(max_steps=core.eval_f_max_iter, criterion=criterion), float(core.f_tol)


def _gradient(core: Any) -> GradientPolicy:
    """The gradient that torchdeq trains with."""
    if core.args.get("ift", False) or core.args.get("hook_ift", False):
        kind = SOLVERS.get(core.b_solver.__name__)
        if kind is None:
            raise AdaptError(f"torchdeq's backward solver {core.b_solver.__name__} is not one of {', '.join(SOLVERS)}")
        return Implicit(solver=kind(max_steps=core.b_max_iter), tol=float(core.b_tol))
    steps, tau = core.args.get("grad", 1), core.args.get("tau", 1.0)
    steps = steps[-1] if isinstance(steps, list | tuple) else steps
    return OneStep() if (steps, tau) == (1, 1.0) else Unrolled(steps=steps, damping=tau)


def _compare(module: nn.Module, core: nn.Module, model: DEQ, x: Tensor) -> None:
    """Follow one pass of the module and require each of our parts to compute what it computes."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
    handle = core.register_forward_hook(lambda _, a, k, out: calls.append((a, k, out)), with_kwargs=True)
    try:
        with torch.no_grad(), evaluating(module):
            logits = module(x)
    finally:
        handle.remove()
    if len(calls) != 1:
        raise AdaptError(f"the module solves for {len(calls)} equilibria in one pass; a DEQ has one")
    (func, z0, *_), options, (states, _) = _arguments(calls[0])
    if options.get("solver_kwargs"):
        raise AdaptError(
            f"the module passes solver_kwargs {sorted(options['solver_kwargs'])} at each call, which are not taken "
            "over: put them into get_deq(...), or set model.solver afterwards and leave x= away"
        )
    if not isinstance(z0, Tensor):
        raise AdaptError(
            f"the state consists of {len(z0)} tensors; a DEQ's state is one: concatenate them, and let f and "
            "head split it"
        )
    with torch.no_grad(), evaluating(model):
        bound, start = model.begin(x)
        if start.shape != z0.shape or not torch.equal(start, z0):
            raise AdaptError(
                f"the solve starts at a tensor {tuple(z0.shape)} that is not zeros like the encoder's "
                f"{tuple(start.shape)}: give initial=, a function of the encoder's result, or another encoder="
            )
        ours, theirs = bound(states[-1]), func(states[-1])
        if not _close(ours, theirs):
            raise AdaptError(
                "f(z, encoder(x)) is not what the module iterates: give f= and encoder= as its forward uses them "
                f"(largest difference {_difference(ours, theirs):.2g})"
            )
        read = model.head(states[-1])
        if not _close(read, logits):
            raise AdaptError(
                "head(z) is not what the module makes of the equilibrium: give head= as its forward uses it, "
                f"everything after the solve included (largest difference {_difference(read, logits):.2g})"
            )


def _arguments(call: tuple[tuple[Any, ...], dict[str, Any], Any]) -> Any:
    """(func, z0), the other arguments and the output of torchdeq's call, however it was written."""
    given, options, out = call
    rest = dict(options)
    func = given[0] if given else rest.pop("func")
    z0 = given[1] if len(given) > 1 else rest.pop("z_init", rest.pop("z_star", None))
    if len(given) > 2:
        rest["solver_kwargs"] = given[2]
    return (func, z0), rest, out


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max()) if ours.shape == theirs.shape else float("inf")


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
