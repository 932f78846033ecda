"""Escalation: what survives everything is attacked again by what broke most, until nothing more breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.store.attack_spec import AttackSpec, Target, canonical
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.audit import FULL

ORACLES = 3
"""Number of oracles that a round attacks with."""
PREFIX = "again-"
"""What the names of a round's attacks start with."""


def escalation(store: Store, plan: Plan, number: int, classes: int) -> list[AttackSpec]:
    """The attacks of a round (from 1), or none if the round before it broke nothing.

    The choice depends on the attacks on all images alone, so that a resumed audit makes the same one. The static base
    is attacked again by its own strongest attack, so that both sides of a comparison have faced the same effort.
    """
    if number > 1 and not _broke(store, plan, number - 1):
        return []
    deployed = [_again(spec, number, classes, "deployed") for spec in _strongest(store, plan, "deployed")[:ORACLES]]
    base = [_again(spec, number, classes, "base") for spec in _strongest(store, plan, "base")[:1]]
    return [*deployed, *base]


def _strongest(store: Store, plan: Plan, target: Target) -> list[AttackSpec]:
    """The gradient attacks on a predictor and all images that left least of it, one for each oracle."""
    specs = {
        spec.name: spec
        for spec in plan.specs
        if spec.on == target
        and spec.survivors is None
        and spec.attack in ("pgd", "apgd")
        and spec.counts(plan.wanted.threat)
    }
    if not specs:
        return []
    shares = metrics.attack_shares(store, list(specs), predictor=target)
    order = sorted(specs.values(), key=lambda spec: shares[spec.name].value)  # ties in the order of the plan
    first: dict[str, AttackSpec] = {}
    for spec in order:
        first.setdefault(canonical([spec.oracle, {**spec.oracle_options, "values": None}]), spec)
    return list(first.values())


def _again(spec: AttackSpec, number: int, classes: int, survivors: Target) -> AttackSpec:
    """A stronger search with the same oracle: more steps, restarts, and another loss in every round."""
    name = f"{PREFIX}{number}-{spec.name}"
    changed: dict[str, Any] = {"name": name, "survivors": survivors, "every_image": False, "group": "audit"}
    if spec.oracle == "watched":  # its loss belongs to what the oracle shows
        steps = (1 + number) * int(spec.options["steps"])
        return replace(spec, options={**spec.options, "steps": steps, "restarts": 1 + number}, **changed)
    steps = (1 + number) * int(spec.options.get("n_iter", spec.options.get("steps", 100)))
    losses = [loss for loss, least in (("dlr", 3), ("ce", 2), ("dlr_targeted", 4)) if classes >= least]
    options: dict[str, Any] = {"loss": losses[(number - 1) % len(losses)], "n_iter": steps, "restarts": 1 + number}
    if options["loss"] == "dlr_targeted":
        options |= {"targets": FULL.targets}
    shown = {**spec.oracle_options, "values": "deployed"}
    return replace(spec, attack="apgd", options=options, oracle_options=shown, **changed)


def _broke(store: Store, plan: Plan, number: int) -> bool:
    """Whether a round has broken an image of the predictor that it attacked."""
    for spec in plan.specs:
        if spec.name.startswith(f"{PREFIX}{number}-"):
            who = pl.col("deployed") & (pl.col("predictor") == spec.survivors)
            if store.rows(spec.name).filter(who & pl.col("success")).collect().height:
                return True
    return False
