"""Attacks and oracles from their specifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from robustdeq.attacks import APGD, FABT, PGD, Attack, AutoAttack, Direct, Oracle, Square
from robustdeq.attacks.oracles import READY, CarriedEstimate, Estimate, Exact, UnrolledState, WatchedStates
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.models.settings import decode

_ATTACKS: dict[str, type[Attack]] = {"pgd": PGD, "apgd": APGD, "square": Square, "fab": FABT, "autoattack": AutoAttack}
_ORACLES: dict[str, Callable[..., Oracle]] = {
    "direct": Direct,
    "ready": lambda predictor, **options: Estimate(predictor, **{"gradient": READY, **options}),
    "unrolled": UnrolledState,
    "estimate": Estimate,
    "carried": CarriedEstimate,
    "exact": Exact,
    "watched": WatchedStates,
}


def build_attack(spec: AttackSpec, seed: int) -> Attack:
    """The attack, with a seed of its own that follows from `seed` and its name."""
    try:
        return _ATTACKS[spec.attack](spec.threat, seed=spec.seed(seed), **spec.options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"attack {spec.name}: {spec.attack} cannot be made with {dict(spec.options)}: {error}"
        ) from error


def build_oracle(spec: AttackSpec, subject: Subject) -> Oracle:
    """What the attacker sees of the predictor under attack."""
    predictor = subject.predictor if spec.on == "deployed" else subject.undefended or subject.predictor
    try:
        if spec.oracle not in _ORACLES:
            raise ValueError("it shows nothing that could be attacked")
        if spec.oracle != "direct" and not isinstance(predictor, DynamicPredictor):
            raise TypeError(
                "it looks at states of a DEQ or of a defence around one; without dynamics use oracle direct"
            )
        return _ORACLES[spec.oracle](predictor, **{k: decode(v) for k, v in spec.oracle_options.items()})
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"attack {spec.name}: oracle {spec.oracle} cannot be made with {dict(spec.oracle_options)}: {error}"
        ) from error


def check_buildable(specs: Iterable[AttackSpec], subject: Subject, seed: int, classes: int) -> None:
    """Refuse attacks and oracles that cannot be built, before anything is run or written.

    Stored images need neither, and the grid's strongest oracle is known only when the grid is done.
    """
    for spec in specs:
        if spec.attack == "stored":
            continue
        needed = build_attack(spec, seed).least_classes
        if classes < needed:
            raise ValueError(
                f"attack {spec.name}: its loss needs at least {needed} classes, the predictor has {classes}: "
                "leave it out (a suite of your own, or suite audit, which does)"
            )
        if spec.oracle != "strongest":
            build_oracle(spec, subject)
