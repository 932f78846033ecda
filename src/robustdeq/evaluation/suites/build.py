"""Attacks and oracles from their specifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from robustdeq.attacks import APGD, FABT, PGD, Attack, AutoAttack, Oracle, Square
from robustdeq.attacks.oracles import READY, CarriedEstimate, Estimate, Exact, UnrolledState, WatchedStates
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.opaque import Beside, Opaque
from robustdeq.evaluation.suites.subject import Callee, Subject
from robustdeq.host.options import checked_options
from robustdeq.host.references import blaming, is_reference, resolve, sources
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.models.settings import decode

_ATTACKS: dict[str, type[Attack]] = {"pgd": PGD, "apgd": APGD, "square": Square, "fab": FABT, "autoattack": AutoAttack}
_ORACLES: dict[str, Callable[..., Oracle]] = {
    "direct": Opaque,
    "ready": lambda predictor, **options: Estimate(predictor, **{"gradient": READY, **options}),
    "unrolled": UnrolledState,
    "estimate": Estimate,
    "carried": CarriedEstimate,
    "exact": Exact,
    "watched": WatchedStates,
}


def with_code(spec: AttackSpec) -> AttackSpec:
    """The specification with digests of the files that define an attack and an oracle of one's own."""
    own = [name for name in (spec.attack, spec.oracle) if is_reference(name)]
    return replace(spec, code={file: digest for name in own for file, digest in sources(name).items()})


def build_attack(spec: AttackSpec, seed: int) -> Attack:
    """The attack, with a seed of its own that follows from `seed` and its name."""
    try:
        if is_reference(spec.attack):
            attack = _own(spec.attack, spec.options, ("threat", "seed"), spec.threat, seed=spec.seed(seed))
            if not isinstance(attack, Attack):
                raise TypeError(f"it is a {type(attack).__name__}; expected a robustdeq.Attack: subclass it")
            return attack
        return _ATTACKS[spec.attack](spec.threat, seed=spec.seed(seed), **spec.options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"attack {spec.name}: {spec.attack} cannot be made with {dict(spec.options)}: {error}"
        ) from error


def build_oracle(spec: AttackSpec, subject: Subject) -> Oracle:
    """What the attacker sees of the predictor under attack."""
    predictor = subject.predictor if spec.on == "deployed" else subject.undefended or subject.predictor
    options = {k: decode(v) for k, v in spec.oracle_options.items()}
    try:
        if is_reference(spec.oracle):
            oracle = _own(spec.oracle, options, ("predictor",), predictor)
            if not isinstance(oracle, Oracle):
                raise TypeError(f"it is a {type(oracle).__name__}; expected a robustdeq.Oracle: subclass it")
            return oracle
        if spec.oracle == "beside":
            return Beside(predictor, _natural(subject.undefended), **options)
        if spec.oracle not in _ORACLES:
            raise ValueError("it shows nothing that could be attacked")
        if spec.oracle != "direct" and not isinstance(predictor, DynamicPredictor):
            raise TypeError(
                "it looks at states of a DEQ or of a defence around one; without dynamics use oracle direct"
            )
        return _ORACLES[spec.oracle](predictor, **options)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"attack {spec.name}: oracle {spec.oracle} cannot be made with {dict(spec.oracle_options)}: {error}"
        ) from error


def _own(reference: str, options: Mapping[str, Any], given: tuple[str, ...], *first: Any, **more: Any) -> Any:
    """What a user's own class makes of an option for each name, after what it is given."""
    factory = resolve(reference)
    if not callable(factory):
        raise TypeError(f"it is a {type(factory).__name__}; expected a class")
    checked = checked_options(reference, factory, options, given)
    with blaming(reference, "it fails"):
        return factory(*first, **more, **checked)


def _natural(base: Callee | None) -> Oracle:
    """The gradient of a static base."""
    if base is None:
        raise ValueError("it takes the gradient of a static base, and there is none: give one (base=, --base)")
    return _ORACLES["ready"](base) if isinstance(base, DynamicPredictor) else Opaque(base)


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
