"""Attacks, oracles and defences as calls: one description makes the object and writes the Python that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import robustdeq
from robustdeq.app.case import Case
from robustdeq.defences import EarlyState, EntropyReduction


@dataclass(frozen=True)
class Call:
    """`rd.path(*args, **options)`; arguments that are names stand for variables of the script."""

    path: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def make(self, **variables: Any) -> Any:
        """Makes the call on robustdeq and returns its result; names stand for the variables given."""

        def value(given: Any) -> Any:
            if isinstance(given, Call):
                return given.make(**variables)
            return variables[given.name] if isinstance(given, Name) else given

        options = {name: value(given) for name, given in self.options.items()}
        return attrgetter(self.path)(robustdeq)(*map(value, self.args), **options)

    def __str__(self) -> str:
        """The call as Python source, with robustdeq imported as rd."""
        arguments = [*map(_written, self.args), *(f"{name}={_written(value)}" for name, value in self.options.items())]
        return f"rd.{self.path}({', '.join(arguments)})"


@dataclass(frozen=True)
class Name:
    """A variable of the script."""

    name: str


def call(path: str, *args: Any, **options: Any) -> Call:
    """`rd.path(*args, **options)`."""
    return Call(path, args, options)


def attack_of(case: Case, eps: float) -> Call:
    """The attack of a case, at a radius."""
    threat = call("Linf", eps)
    if case.attack == "apgd":
        return call("APGD", threat, n_iter=case.steps, seed=case.seed)
    loss = {"loss": "confident"} if case.oracle == "watched" else {}
    return call("PGD", threat, steps=case.steps, step_size=eps / 4, seed=case.seed, **loss)


def oracle_of(case: Case, dynamic: bool) -> Call:
    """What the attacker sees of `deployed`; without dynamics there is only its own gradient."""
    deployed, view = Name("deployed"), case.oracle_view
    seen = {} if view == "oblivious" else {"view": view}
    match case.oracle if dynamic else "direct":
        case "ready":
            return call("oracles.Estimate", deployed, gradient=call("Phantom", steps=9, damping=0.5), **seen)
        case "unrolled" if view == "bpda":
            policy = call("Unrolled", steps=case.oracle_steps, damping=case.oracle_damping)
            return call("oracles.Estimate", deployed, gradient=policy, state=case.oracle_state, **seen)
        case "unrolled":
            chosen = {"state": case.oracle_state, "steps": case.oracle_steps, "damping": case.oracle_damping}
            return call("UnrolledState", deployed, **chosen, **({"aware": True} if view == "aware" else {}))
        case "carried":
            return call("oracles.CarriedEstimate", deployed, **seen)
        case "exact":
            options: dict[str, dict[str, Any]] = {
                "oblivious": {"oblivious": True},
                "aware": {},
                "bpda": {"smoothing": None},
            }
            return call("oracles.Exact", deployed, **options[view])
        case "watched":
            return call("oracles.WatchedStates", deployed)
        case _:
            return call("oracles.Direct", deployed)


def deployed_of(predictor: Any, model: Any, settings: dict[str, Any]) -> Call | Name:
    """How `deploy` has wrapped a model."""
    if predictor is model or not isinstance(predictor, EarlyState | EntropyReduction):
        return Name("model")
    inner = deployed_of(predictor.predictor, model, settings)
    if isinstance(predictor, EarlyState):
        return call("EarlyState", inner, state=predictor.state)
    return call("EntropyReduction", inner, **settings)


def _written(value: Any) -> str:
    if isinstance(value, Name):
        return value.name
    if isinstance(value, float) and value * 255 == round(value * 255) and 0 < value < 1:
        return f"{round(value * 255)} / 255"
    return str(value) if isinstance(value, Call) else repr(value)
