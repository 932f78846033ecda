"""Oracles and attacks from their specifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from robustdeq.attacks import APGD, FABT, PGD, Attack, AutoAttack, Direct, Oracle, Square
from robustdeq.attacks.oracles import Estimate, Exact, UnrolledState, WatchedStates
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.models.settings import decode
from robustdeq.solve import Phantom

READY = Phantom(steps=9, damping=0.5)
"""METHOD.md's ready-made attack differentiates the final state so."""

_ATTACKS: dict[str, type[Attack]] = {"pgd": PGD, "apgd": APGD, "square": Square, "fab": FABT, "autoattack": AutoAttack}


def build_attack(spec: AttackSpec, seed: int) -> Attack:
    """The attack, seeded by (seed, its name)."""
    try:
        return _ATTACKS[spec.attack](spec.threat, seed=spec.seed(seed), **spec.options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"attack {spec.name}: {spec.attack} cannot be made with {dict(spec.options)}: {error}"
        ) from error


def build_oracle(spec: AttackSpec, subject: Subject) -> Oracle:
    """What the attacker sees of the predictor under attack."""
    target = subject if spec.on == "deployed" else Subject(subject.undefended or subject.predictor)
    try:
        return _oracle(spec.oracle, target.predictor, {k: decode(v) for k, v in spec.oracle_options.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"attack {spec.name}: oracle {spec.oracle} cannot be made with {dict(spec.oracle_options)}: {error}"
        ) from error


def check_buildable(specs: Iterable[AttackSpec], subject: Subject, seed: int, classes: int) -> None:
    """Refuse attacks and oracles that cannot be made, before anything is run or written.

    Stored images need neither, and the grid's strongest oracle is known only when the grid is done.
    """
    for spec in specs:
        if spec.attack != "stored":
            needed = build_attack(spec, seed).least_classes
            if classes < needed:
                raise ValueError(
                    f"attack {spec.name}: its loss needs at least {needed} classes, the predictor has {classes}: "
                    "leave it out (a suite of your own, or suite audit, which does)"
                )
            if spec.oracle != "strongest":
                build_oracle(spec, subject)


def _oracle(kind: str, predictor: Callable[[Tensor], Tensor], options: dict[str, Any]) -> Oracle:
    match kind:
        case "direct":
            return Direct(predictor, **options)
        case "ready":
            return Estimate(_dynamic(predictor), **{"gradient": READY, **options})
        case "unrolled":
            return UnrolledState(_dynamic(predictor), **options)
        case "estimate":
            return Estimate(_dynamic(predictor), **options)
        case "exact":
            return Exact(_dynamic(predictor), **options)
        case "watched":
            return WatchedStates(_dynamic(predictor), **options)
        case _:
            raise ValueError("it shows nothing that could be attacked")


def _dynamic(predictor: Callable[[Tensor], Tensor]) -> DynamicPredictor:
    if not isinstance(predictor, DynamicPredictor):
        raise TypeError("it looks at states of a DEQ or of a defence around one; without dynamics use oracle direct")
    return predictor
