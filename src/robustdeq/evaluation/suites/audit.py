"""The audit's attacks: what a reviewer would try on a defence (end of section 5 of docs/method.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from robustdeq.attacks import Square
from robustdeq.evaluation.store.attack_spec import SANITY, AttackSpec
from robustdeq.evaluation.suites.attacks import on_base, ready, square
from robustdeq.evaluation.suites.suite import Context, Suite

LARGE = {"Linf": 0.5, "L2": 50.0}
"""Radii at which every image can be made grey, so that no predictor keeps its accuracy."""


@dataclass(frozen=True)
class Budget:
    """How hard the audit's attacks try."""

    steps: int
    """Steps of the long PGD, which is compared with 10 steps, and of PGD at the large radius."""
    search: int
    """Steps of APGD and of the attacks through the defence."""
    restarts: int
    rounds: int
    """Rounds, at most, in which the strongest attacks are repeated on what survives."""
    targets: int = 3
    """Target classes of the targeted attack on survivors, the likeliest wrong ones."""
    square: Mapping[str, int] = field(default_factory=dict)
    """Options of Square; by default its standard ones, as in Table 4, so that one store holds it once."""


FULL = Budget(steps=100, search=100, restarts=5, rounds=3)
REDUCED = Budget(steps=12, search=6, restarts=1, rounds=0, targets=1, square={"n_queries": 15})
"""For demonstrations that take seconds."""


def audit_suite(context: Context, budget: Budget = FULL) -> Suite:
    """The audit's checklist as attacks on any predictor; a defended one also faces attacks adapted to its defence."""
    if context.union:
        raise ValueError("the audit compares attacks image by image: leave --union away")
    steps, search = budget.steps, budget.search
    specs = [
        ready(context),
        replace(ready(context), name=f"pgd-{steps}", group="audit", options={**context.pgd, "steps": steps}),
    ]
    if context.defended:
        specs.append(ready(context, aware=True))
    # a careful attacker differentiates the predictor as it is, its defence included
    oracle = "ready" if context.dynamic else "direct"
    options = {"view": "aware"} if context.defended else {}
    specs += [_apgd(context, f"apgd-{loss}", oracle, options, loss=loss, n_iter=search) for loss in context.losses]
    if budget.restarts > 1:
        again = _apgd(context, "apgd-restarts", oracle, options, loss="ce", restarts=budget.restarts, n_iter=search)
        specs.append(replace(again, every_image=False))
    if context.dynamic:
        specs.append(_apgd(context, "exact", "exact", {}, loss="ce", n_iter=search))
        specs.append(_apgd(context, "apgd-carried", "carried", options, loss="ce", n_iter=search))
    if context.defended:
        bpda = {"view": "bpda", "state": context.subject.early_state}
        specs += [
            _apgd(context, "exact-constant", "exact", {"smoothing": None}, loss="ce", n_iter=search),
            _apgd(context, "bpda", "estimate", bpda, loss="ce", n_iter=search),
            context.spec(
                "confident",
                "pgd",
                "watched",
                options={**context.pgd, "steps": search, "loss": "confident"},
                group="audit",
            ),
        ]
    elif context.base is not None:
        specs += [_apgd(context, f"bpda-{x}", "beside", {}, loss=x, n_iter=search) for x in context.losses]
    specs += [replace(spec, options={**spec.options, "n_iter": search}) for spec in on_base(context)]
    # PGD at a radius that can hide the image checks that the attacks work, and is no part of the union
    eps = max(LARGE[type(context.threat).__name__], context.threat.eps)
    long = {"steps": steps, "step_size": eps / 10}
    large = replace(ready(context), name="large-eps", group=SANITY, eps=eps, options=long)
    specs += [large, *_on_survivors(context, budget, oracle, options)]
    return Suite("audit", specs, audited=True, rounds=budget.rounds)


def _on_survivors(context: Context, budget: Budget, oracle: str, options: dict[str, Any]) -> list[AttackSpec]:
    """Other losses and restarts with the best gradient there is, and Square, on what the attacks before them leave."""
    best, shown, prefix = ("exact", {}, "exact") if context.dynamic else (oracle, options, "apgd")
    left: dict[str, Any] = {"survivors": "deployed", "every_image": False}
    specs = []
    if context.dynamic and "dlr" in context.losses:
        specs.append(_apgd(context, "exact-dlr", best, shown, loss="dlr", n_iter=budget.search))
    if context.classes is None or context.classes >= 4:
        targeted = {"loss": "dlr_targeted", "targets": budget.targets, "n_iter": budget.search}
        specs.append(_apgd(context, f"{prefix}-targeted", best, shown, **targeted))
    if context.dynamic and budget.restarts > 1:
        again = {"loss": "ce", "restarts": budget.restarts, "n_iter": budget.search}
        specs.append(_apgd(context, "exact-restarts", best, shown, **again))
    specs.append(square(context, "square-survivors", options=budget.square, group="audit"))
    whole = square(context, options=budget.square, group="audit")
    if _holds(context, whole):  # Table 4, or an audit by an earlier version, has run it on all images
        return [*(replace(spec, **left) for spec in specs[:-1]), whole]
    return [replace(spec, **left) for spec in specs]


def _holds(context: Context, spec: AttackSpec) -> bool:
    """Whether the store under evaluation has this attack."""
    manifest = None if context.store is None else context.store.read_manifest()
    return manifest is not None and spec.name in manifest.attacks and manifest.attacks[spec.name].hash == spec.hash


def reduced_audit(context: Context) -> Suite:
    """The same checklist at a budget for demonstrations."""
    note = (
        f"audit-reduced: {REDUCED.search} steps ({REDUCED.steps} of PGD) instead of {FULL.steps}, no restarts, no "
        f"escalation, {REDUCED.square['n_queries']} Square queries instead of {Square.n_queries}: it shows how an "
        "audit reads, no more"
    )
    return replace(audit_suite(context, REDUCED), name="audit-reduced", notes=[note])


def _apgd(context: Context, name: str, oracle: str, options: dict[str, Any], **attack: Any) -> AttackSpec:
    shown = {**options, "values": "deployed"}
    return context.spec(name, "apgd", oracle, options=attack, oracle_options=shown, group="audit")
