"""The attacks that suites are made of, for a predictor and a threat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.context import Setting

UNROLLINGS = range(1, 10)
"""K_a of the grid."""
DAMPINGS = (0.5, 1.0)
"""lambda of the grid."""


def ready(setting: Setting, *, aware: bool = False, **changes: Any) -> AttackSpec:
    """PGD-10 at the final state, K = 9; for predictors without dynamics with their own gradient."""
    if setting.subject.dynamic is None:
        name, oracle = "pgd-direct", "direct"
    else:
        name, oracle = "pgd-ready", "ready"
    options = {"view": "aware"} if aware and oracle == "ready" else {}
    name = f"{name}-aware" if aware and options else name
    spec = AttackSpec(
        name=name,
        attack="pgd",
        options=setting.pgd,
        oracle=oracle,
        oracle_options=options,
        diagnostics=oracle == "ready",
        group="ready",
        **setting.ball,
    )
    return replace(spec, **changes)


def grid_name(state: int, steps: int, damping: float, *, attack: str = "pgd", aware: bool = False) -> str:
    """pgd-i3-K5-l0.5."""
    return f"{attack}{'-aware' if aware else ''}-i{state}-K{steps}-l{damping:g}"


def unrolled(setting: Setting, state: int, steps: int, damping: float, *, aware: bool = False) -> AttackSpec:
    """PGD-10 on z^[i] unrolled K_a times: one attack of the grid."""
    return AttackSpec(
        name=grid_name(state, steps, damping, aware=aware),
        attack="pgd",
        options=setting.pgd,
        oracle="unrolled",
        oracle_options={"state": state, "steps": steps, "damping": damping, "form": "paper", "aware": aware},
        group="grid-aware" if aware else "grid",
        **setting.ball,
    )


def grid(setting: Setting) -> list[AttackSpec]:
    """The 144 attacks (N = 8), oblivious; aware ones too when asked for."""
    if setting.subject.dynamic is None:
        return [ready(setting)]
    return [
        unrolled(setting, i, k, damping, aware=aware)
        for aware in ((False, True) if setting.aware and setting.defended else (False,))
        for damping in DAMPINGS
        for i in range(1, setting.subject.states + 1)
        for k in UNROLLINGS
    ]


def autoattack(setting: Setting, *, with_grid: bool) -> AttackSpec:
    """AutoAttack standard, at the grid's strongest oracle if the grid is or will be there; the name says which."""
    options: dict[str, Any] = {"values": "deployed"}
    if setting.subject.dynamic is None:
        name, oracle = "aa", "direct"
    elif with_grid and not setting.union:
        name, oracle = "aa-strongest", "strongest"
    else:
        name, oracle = "aa-ready", "ready"
        options |= {"view": "aware"} if setting.aware and setting.defended else {}
    return AttackSpec(
        name=name,
        attack="autoattack",
        oracle=oracle,
        oracle_options=options,
        every_image=False,
        group="autoattack",
        **setting.ball,
    )


def square(setting: Setting, **changes: Any) -> AttackSpec:
    """Square with its 5,000 queries: it sees the deployed predictor's values and no gradient, so no state matters."""
    spec = AttackSpec(
        name="square",
        attack="square",
        oracle="direct",
        oracle_options={"values": "deployed"},
        every_image=False,
        **setting.ball,
    )
    return replace(spec, **changes)


def on_base(setting: Setting) -> list[AttackSpec]:
    """Attacks on the undefended model, whose images the defended one is then shown."""
    if not setting.defended:
        return []
    common = {"on": "base", "group": "transfer", **setting.ball}
    ready_made = [
        AttackSpec(
            name=f"base-apgd-{loss}",
            attack="apgd",
            options={"loss": loss},
            oracle="ready",
            oracle_options={"values": "deployed"},
            **common,
        )
        for loss in (("ce", "dlr") if setting.has_dlr else ("ce",))
    ]
    exact = AttackSpec(name="base-exact", attack="apgd", options={"loss": "ce"}, oracle="exact", **common)
    return [*ready_made, exact]


def has_grid(store: Store | None, setting: Setting) -> bool:
    """Whether a store holds the whole grid, on every image."""
    manifest = store.read_manifest() if store is not None else None
    if store is None or manifest is None or manifest.union:
        return False
    return all(spec.name in manifest.attacks and store.complete(spec.name) for spec in grid(setting))
