"""The attacks that suites are made of. `grid` is the paper's grid of intermediate-state attacks."""

from __future__ import annotations

from typing import Any

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.suite import DAMPINGS as DAMPINGS
from robustdeq.evaluation.suites.suite import UNROLLINGS as UNROLLINGS
from robustdeq.evaluation.suites.suite import Context


def grid(context: Context) -> list[AttackSpec]:
    """PGD-10 at every state i, K_a and lambda: 144 attacks for N = 8; with `aware` also through the defence.

    A predictor without dynamics has no states: its grid is PGD-10 on its own gradient.
    """
    if not context.dynamic:
        return [ready(context)]
    return [
        unrolled(context, i, k, damping, aware=aware)
        for aware in ((False, True) if context.aware and context.defended else (False,))
        for damping in context.dampings
        for i in range(1, context.subject.states + 1)
        for k in context.unrollings
    ]


def unrolled(context: Context, state: int, steps: int, damping: float, *, aware: bool = False) -> AttackSpec:
    """One attack of the grid: PGD-10 on z^[state], unrolled `steps` times."""
    options = {"state": state, "steps": steps, "damping": damping, "form": "paper", "aware": aware}
    name, group = grid_name(state, steps, damping, aware=aware), "grid-aware" if aware else "grid"
    return context.spec(name, "pgd", "unrolled", options=context.pgd, oracle_options=options, group=group)


def grid_name(state: int, steps: int, damping: float, *, attack: str = "pgd", aware: bool = False) -> str:
    """The name of an attack of the grid, such as pgd-i3-K5-l0.5."""
    return f"{attack}{'-aware' if aware else ''}-i{state}-K{steps}-l{damping:g}"


def has_grid(context: Context) -> bool:
    """Whether the context's store holds the whole grid, on every image."""
    manifest = None if context.store is None else context.store.read_manifest()
    if context.store is None or manifest is None or manifest.union:
        return False
    return all(spec.name in manifest.attacks and context.store.complete(spec.name) for spec in grid(context))


def ready(context: Context, *, aware: bool = False, **changes: Any) -> AttackSpec:
    """The ready-made attack: PGD-10 at the final state, K = 9; without dynamics, on the predictor's own gradient."""
    aware = aware and context.dynamic
    name = "pgd-direct" if not context.dynamic else "pgd-ready-aware" if aware else "pgd-ready"
    view = {"view": "aware"} if aware else {}
    usual = {"options": context.pgd, "oracle_options": view, "diagnostics": context.dynamic, "group": "ready"}
    return context.spec(name, "pgd", "ready" if context.dynamic else "direct", **{**usual, **changes})


def autoattack(context: Context, *, with_grid: bool) -> AttackSpec:
    """Standard AutoAttack; at the grid's strongest oracle if the grid is available. Its name says which oracle."""
    options: dict[str, Any] = {"values": "deployed"}
    if not context.dynamic:
        name, oracle = "aa", "direct"
    elif with_grid and not context.union:
        name, oracle = "aa-strongest", "strongest"
    else:
        name, oracle = "aa-ready", "ready"
        options |= {"view": "aware"} if context.aware and context.defended else {}
    return context.spec(name, "autoattack", oracle, oracle_options=options, every_image=False, group="autoattack")


def autoattack_carried(context: Context) -> AttackSpec:
    """Standard AutoAttack along gradients whose adjoint is carried from step to step."""
    if not context.dynamic:
        raise ValueError("suite autoattack-carried carries adjoints of a DEQ; without dynamics run autoattack")
    options = {"values": "deployed"} | ({"view": "aware"} if context.aware and context.defended else {})
    return context.spec(
        "aa-carried", "autoattack", "carried", oracle_options=options, every_image=False, group="autoattack"
    )


def square(context: Context, name: str = "square", **changes: Any) -> AttackSpec:
    """Square with its standard 5,000 queries; it sees the deployed predictor's logits and no gradient."""
    usual = {"oracle_options": {"values": "deployed"}, "every_image": False}
    return context.spec(name, "square", "direct", **{**usual, **changes})


def on_base(context: Context) -> list[AttackSpec]:
    """Attacks on the static base, whose images are then shown to the predictor; none without a base."""
    if context.base is None:
        return []
    common: dict[str, Any] = {"on": "base", "group": "transfer"}
    deployed = {"oracle_options": {"values": "deployed"}, **common}
    dynamic = context.base.dynamic is not None
    oracle = "ready" if dynamic else "direct"
    specs = [context.spec(f"base-apgd-{x}", "apgd", oracle, options={"loss": x}, **deployed) for x in context.losses]
    return [*specs, context.spec("base-exact", "apgd", "exact", options={"loss": "ce"}, **common)] if dynamic else specs
