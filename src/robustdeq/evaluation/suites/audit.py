"""The audit's attacks: what a reviewer would try on a defence (end of section 5 of the method)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from robustdeq.attacks import Square
from robustdeq.evaluation.store.attack_spec import SANITY, AttackSpec
from robustdeq.evaluation.suites.attacks import on_base, ready, square
from robustdeq.evaluation.suites.context import Setting
from robustdeq.evaluation.suites.suite import Suite

LARGE = 0.5
"""An L-infinity radius at which every image can be made grey: no predictor keeps its accuracy."""


@dataclass(frozen=True)
class Budget:
    """How hard the attacks try."""

    steps: int
    """Of the longer PGD that is compared with the ready-made 10 steps, and of the large radius."""
    search: int
    """Of APGD and of the attacks through the defence, where a step costs most."""
    restarts: int
    square: Mapping[str, int] = field(default_factory=dict)
    """Options of Square; with its own budget it is Table 4's, and one folder holds it once."""


FULL = Budget(steps=100, search=100, restarts=5)
REDUCED = Budget(steps=12, search=6, restarts=1, square={"n_queries": 15})
"""Shows how an audit reads in seconds; its verdict is no evidence, and its notes say so."""


def audit_suite(setting: Setting, budget: Budget | None = None) -> Suite:
    """The checklist as attacks on any predictor; a defence gets the adaptive ones too. Full budget if not said."""
    budget = FULL if budget is None else budget
    if setting.union:
        raise ValueError("the audit compares attacks image by image: leave --union away")
    steps, search = budget.steps, budget.search
    specs = [ready(setting), _named(ready(setting), f"pgd-{steps}", options={**setting.pgd, "steps": steps})]
    if setting.defended:
        specs.append(ready(setting, aware=True))
    specs.append(_apgd(setting, "apgd-ce", *_gradient(setting), loss="ce", n_iter=search))
    if setting.has_dlr:
        specs.append(_apgd(setting, "apgd-dlr", *_gradient(setting), loss="dlr", n_iter=search))
    if budget.restarts > 1:
        again: dict[str, Any] = {"loss": "ce", "restarts": budget.restarts, "n_iter": search}
        specs.append(_apgd(setting, "apgd-restarts", *_gradient(setting), every_image=False, **again))
    if setting.subject.dynamic is not None:
        specs.append(_apgd(setting, "exact", "exact", {}, loss="ce", n_iter=search))
    if setting.defended:
        state = setting.subject.early_state
        specs += [
            _apgd(setting, "exact-constant", "exact", {"smoothing": None}, loss="ce", n_iter=search),
            _apgd(setting, "bpda", "estimate", {"view": "bpda", "state": state}, loss="ce", n_iter=search),
            AttackSpec(
                name="confident",
                attack="pgd",
                options={**setting.pgd, "steps": search, "loss": "confident"},
                oracle="watched",
                group="audit",
                **setting.ball,
            ),
            *(replace(spec, options={**spec.options, "n_iter": search}) for spec in on_base(setting)),
        ]
    specs += [
        square(setting, options=budget.square, group="audit"),
        _large(setting, steps),
    ]
    return Suite("audit", specs, audited=True)


def reduced_audit(setting: Setting) -> Suite:
    """The same checklist at a budget for demonstrations."""
    words = (
        f"audit-reduced: {REDUCED.search} steps ({REDUCED.steps} of PGD) instead of {FULL.steps}, no restarts, "
        f"{REDUCED.square['n_queries']} Square queries instead of {Square.n_queries}: it shows how an audit reads, no "
        "more"
    )
    suite = audit_suite(setting, REDUCED)
    return replace(suite, name="audit-reduced", notes=[*suite.notes, words])


def _named(spec: AttackSpec, name: str, **changes: Any) -> AttackSpec:
    return replace(spec, name=name, group="audit", **changes)


def _gradient(setting: Setting) -> tuple[str, dict[str, Any]]:
    """What a careful attacker differentiates by default: the predictor as it is."""
    if setting.subject.dynamic is None:
        return "direct", {}
    return "ready", {"view": "aware"} if setting.defended else {}


def _apgd(
    setting: Setting, name: str, oracle: str, options: dict[str, Any], *, every_image: bool = True, **attack: Any
) -> AttackSpec:
    return AttackSpec(
        name=name,
        attack="apgd",
        options=attack,
        oracle=oracle,
        oracle_options={**options, "values": "deployed"},
        every_image=every_image,
        group="audit",
        **setting.ball,
    )


def _large(setting: Setting, steps: int) -> AttackSpec:
    """PGD at a radius at which nothing of the image need be left; it is no part of the union."""
    pixels = LARGE if type(setting.threat).__name__ == "Linf" else 50.0
    eps = max(pixels, setting.threat.eps)
    spec = _named(ready(setting), "large-eps", options={"steps": steps, "step_size": eps / 10}, eps=eps)
    return replace(spec, group=SANITY)
