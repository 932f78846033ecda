"""How long a suite will take, measured on a few images before it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from robustdeq.attacks import AutoAttack
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.build import build_attack, build_oracle
from robustdeq.evaluation.suites.subject import Subject

FEW = 16
"""Number of images that are measured on."""
FIRST = 10
"""Passes of an attack in which most images that it breaks are broken."""
SHORT: dict[str, dict[str, Any]] = {
    "pgd": {"steps": 3},
    "apgd": {"n_iter": 3, "loss": "ce"},
    "fab": {"n_iter": 2, "targets": 1},
    "square": {"n_queries": 30},
}
"""Options of the short attacks that are timed."""


def estimate_seconds(specs: Sequence[AttackSpec], subject: Subject, x: Tensor, y: Tensor, seed: int = 0) -> float:
    """Expected seconds of attacks on all of these images, from short ones on the first few of them.

    Attacks that leave broken images alone are counted for the share of images that the first attack does not break.
    """
    few, labels = subject.pixels(x[:FEW]), y[:FEW].to(subject.device or y.device)
    paces: dict[str, float] = {}

    def pace(spec: AttackSpec, kind: str) -> float:
        """Seconds per image and pass."""
        key = json.dumps([kind, spec.on, spec.oracle, dict(spec.oracle_options)], sort_keys=True, default=str)
        if key not in paces:
            options = SHORT.get(kind, dict(spec.options))
            attack = build_attack(replace(spec, name="short", attack=kind, options=options), seed)
            oracle = build_oracle(spec, subject)
            attack(oracle, few[:1], labels[:1])  # what is done once for all
            began = time.perf_counter()
            queries = attack(oracle, few, labels).queries.sum().item()  # waits for the device
            paces[key] = (time.perf_counter() - began) / queries
        return paces[key]

    total = 0.0
    surviving = 1.0
    for number, spec in enumerate(specs):
        if number == 0:
            result = build_attack(spec, seed)(build_oracle(spec, subject), few, labels)
            surviving = float((~result.success).double().mean())
        for kind, count in passes(spec).items():
            stays = kind != "square" and kind != "fab" and spec.every_image
            share = 1.0 if stays else surviving + (1 - surviving) * min(1.0, FIRST / count)
            total += share * count * pace(spec, kind) * spec.runs_on(len(x))
    return total


def passes(spec: AttackSpec) -> dict[str, int]:
    """Passes of the oracle per image that is not broken, by kind of attack."""
    options = spec.options
    match spec.attack:
        case "pgd":
            return {"pgd": options.get("restarts", 1) * options.get("steps", 10)}
        case "apgd":
            targets = options.get("targets", 9) if options.get("loss") == "dlr_targeted" else 1
            return {"apgd": options.get("restarts", 1) * targets * (options.get("n_iter", 100) + 1)}
        case "square":
            return {"square": options.get("n_queries", 5000)}
        case "fab":
            return {"fab": options.get("targets", 9) * options.get("n_iter", 100)}
        case "autoattack":
            steps, targets, queries = (
                {**AutoAttack.STANDARD, **options}[n] for n in ("n_iter", "targets", "n_queries")
            )
            return {"apgd": (1 + targets) * (steps + 1), "fab": targets * steps, "square": queries}
        case other:
            return {other: 1}
